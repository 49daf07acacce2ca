"""ferryman on the keyspaces of other systems, beside those systems' own processes: ``python -m benchmarks.live``."""
