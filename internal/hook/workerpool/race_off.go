//go:build !race

package workerpool

// limitData says whether a worker's memory can be limited from outside.
const limitData = true
