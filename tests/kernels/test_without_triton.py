"""Where Triton cannot be installed, the package still imports and computes the references."""

import subprocess
import sys

PROGRAM = """
import sys
sys.modules["triton"] = None
import torch, fast_r2d2_kernels as kernels
assert not kernels.is_available()
x = torch.ones(2, 8, requires_grad=True)
kernels.bias_gelu(x, x[0], 0.5, seed=1).sum().backward()
assert x.grad.isfinite().all()
"""


def test_references_run_without_triton():
    run = subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert not run.stderr
