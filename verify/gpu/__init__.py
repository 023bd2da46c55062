"""What needs a live GPU: probes that run in child processes, one for each file, and the parent's side of them."""
