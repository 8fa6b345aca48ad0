"""The parts of `speed.py`."""
