module github.com/tocsin-dev/tocsin/services/ingest

go 1.26

require github.com/tocsin-dev/tocsin v0.0.0

replace github.com/tocsin-dev/tocsin => ../..
