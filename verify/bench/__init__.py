"""One file per family of workloads. Files are found, not listed: a function under `@bench` is all a new one needs."""
