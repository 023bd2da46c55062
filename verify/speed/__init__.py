"""The speed tier: fresh processes that time the workloads of verify/bench, and the verdict on what they measured."""
