"""Profiles of the fuzzers.

``quick`` runs with the other tests and draws the same every time. ``long`` is for `run.py`, which gives every round
another seed.
"""

import os
from datetime import timedelta

from hypothesis import HealthCheck, settings

IS_LONG = os.environ.get("FUZZ_PROFILE") == "long"


def examples(quick: int, long: int) -> settings:
    """Numbers of examples for both profiles. A single example may take 20 seconds."""
    return settings(
        max_examples=long if IS_LONG else quick,
        derandomize=not IS_LONG,
        print_blob=True,
        deadline=timedelta(seconds=20),
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
    )


profile = examples(quick=20, long=150)
of_texts = examples(quick=20, long=600)
of_batches = examples(quick=40, long=3000)
of_training = examples(quick=40, long=1500)
