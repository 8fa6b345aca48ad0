"""Every op on 100,000 nodes against its reference: on a GPU, or for more than an hour in Triton's interpreter.

Started by `test_gpu.py`; by hand, without a GPU: ``TRITON_INTERPRET=1 pytest tests/kernels/ops_on_many_nodes.py``.
"""

import pytest
import torch

import fast_r2d2_kernels as kernels
from comparison import DTYPES, TOLERANCE, draw, largest_error
from fast_r2d2_kernels.attention import composition_attention_reference
from fast_r2d2_kernels.bias_gelu import bias_gelu_reference
from fast_r2d2_kernels.blend_norm import blend_norm_reference
from fast_r2d2_kernels.choice import choose_reference
from fast_r2d2_kernels.gather import gather_children_reference
from fast_r2d2_kernels.residual_norm import residual_norm_reference
from modeling_fast_r2d2.parser import range_logsumexp

NODES, SIZE, HEADS = 100_000, 24, 2
GENERATOR = torch.Generator().manual_seed(0)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype)[6:])


@pytest.fixture(scope="module", autouse=True)
def new_memory_is_poisoned():
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def children() -> torch.Tensor:
    return torch.randint(NODES, (2, NODES), generator=GENERATOR)


def ranges() -> torch.Tensor:
    """Of up to 200 split points each."""
    first = torch.randint(NODES - 200, (NODES,), generator=GENERATOR)
    return torch.stack([first, first + torch.randint(200, (NODES,), generator=GENERATOR)])


CASES = {
    "gather_children": lambda: (
        (kernels.gather_children, gather_children_reference), (draw(NODES, SIZE), draw(2, SIZE), *children()), (),
    ),
    "composition_attention": lambda: (
        (kernels.composition_attention, composition_attention_reference),
        (draw(4, NODES, 3 * SIZE), draw(4, 3 * SIZE)), (HEADS,),
    ),
    "residual_norm": lambda: (
        (kernels.residual_norm, residual_norm_reference),
        (draw(NODES, SIZE), draw(SIZE), draw(NODES, SIZE, seed=1)), (1e-5,),
    ),
    "bias_gelu": lambda: ((kernels.bias_gelu, bias_gelu_reference), (draw(NODES, SIZE), draw(SIZE)), ()),
    "blend_norm": lambda: (
        (kernels.blend_norm, blend_norm_reference),
        (draw(NODES, 2), draw(NODES, SIZE), draw(NODES, SIZE, seed=1)), (1e-5,),
    ),
    "choose": lambda: ((kernels.choose, choose_reference), (draw(NODES, 4, SIZE), draw(NODES, 4), None), ()),
    "range_logsumexp": lambda: ((kernels.range_logsumexp, range_logsumexp), (draw(NODES), *ranges()), ()),
}  # fmt: skip


@each_dtype
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name, dtype):
    functions, tensors, options = CASES[name]()
    op, reference = (lambda *given, f=f: f(*given, *options) for f in functions)
    error = largest_error(op, reference, tensors, dtype)
    print(f"{name} {dtype} relative error {error:.1e}")
    assert error <= TOLERANCE[dtype]
