"""The kernels in Triton's interpreter, in processes of their own: it is switched on before kernels are decorated."""

import os

import pytest

from comparison import run_apart


@pytest.mark.slow
@pytest.mark.parametrize(("file", "chosen"), [
    ("ops_against_references.py", ""), ("kernels_on_trial.py", ""), ("model_on_kernels.py", "curve"),
    ("model_on_kernels.py", "not curve"),
])  # fmt: skip
def test_what_runs_in_the_interpreter_passes(file, chosen):
    pytest.importorskip("triton")
    run_apart(file, chosen, os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"})
