module github.com/tocsin-dev/tocsin/services/dispatcher

go 1.26.0

require github.com/tocsin-dev/tocsin v0.0.0

require (
	go.uber.org/multierr v1.10.0 // indirect
	go.uber.org/zap v1.28.0 // indirect
	golang.org/x/sync v0.25.0 // indirect
)

replace github.com/tocsin-dev/tocsin => ../..
