"""The kernels in Triton's interpreter, in processes of their own: it is switched on before kernels are decorated."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "chosen"),
    [("ops_against_references.py", ""), ("kernels_on_trial.py", ""), ("model_on_kernels.py", "curve"),
     ("model_on_kernels.py", "not curve")],
)  # fmt: skip
def test_what_runs_in_the_interpreter_passes(file, chosen):
    pytest.importorskip("triton")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", chosen]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    run = subprocess.run([*command, HERE / file], cwd=HERE, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
