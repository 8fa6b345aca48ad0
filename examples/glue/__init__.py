"""The parts of `run_glue.py`: tasks, data, features, metrics, reports."""
