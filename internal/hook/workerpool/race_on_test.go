//go:build race

package workerpool_test

// slowdown stretches time limits: the race detector slows the engine down.
const slowdown = 2
