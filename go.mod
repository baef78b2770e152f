module github.com/tocsin-dev/tocsin

go 1.26
