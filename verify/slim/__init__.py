"""Slims a Python stack: zeroes the GPU code that no declared card runs. Start reading with `decide` and `work`."""
