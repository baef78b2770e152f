//go:build !race

package workerpool_test

const slowdown = 1
