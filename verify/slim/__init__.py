"""Slims a Python stack: zeroes the GPU code that no declared card runs. Start with `decide` and `work`."""
