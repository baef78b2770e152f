//go:build race

package workerpool

// The race detector maps far more memory than a worker may have.
const limitData = false
