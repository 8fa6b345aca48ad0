"""The modules of `run_glue.py`."""
