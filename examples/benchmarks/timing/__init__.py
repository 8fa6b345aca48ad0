"""The modules of the scripts in `benchmarks`."""
