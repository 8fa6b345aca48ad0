"""The parts of `speed.py` and `benchmark_training.py`."""
