"""Speed and memory, each figure against a baseline of the same run. `python -m benchmarks [GROUP]`."""
