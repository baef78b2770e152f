module github.com/tocsin-dev/tocsin/services/dispatcher

go 1.26

require github.com/tocsin-dev/tocsin v0.0.0

replace github.com/tocsin-dev/tocsin => ../..
