"""What was published about this stack on an RTX 4090 D, beside physics and beside what this machine measures."""
