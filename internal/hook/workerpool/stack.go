package workerpool

func mapStack(stack string, sourceMap []byte) string { return stack }
