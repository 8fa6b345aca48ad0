"""Every kernel against its definition on a small drawn input, before a model uses it on a device for the first time.

A compiler, a driver or a GPU that nobody has tried may give wrong numbers. Then a model takes torch's operations.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .attention import composition_attention, composition_attention_reference
from .bias_gelu import bias_gelu, bias_gelu_reference
from .blend_norm import blend_norm, blend_norm_reference
from .choice import choose, choose_reference
from .gather import gather_children, gather_children_reference
from .launch import HAS_TRITON, triton
from .residual_norm import residual_norm, residual_norm_reference

COMPOSITIONS = 5  # of an input; the sizes of vectors and heads decide what is compiled
TOLERANCE = {torch.float32: 5e-5, torch.float16: 1e-2, torch.bfloat16: 1e-2}  # relative, of each output and gradient


class Example(NamedTuple):
    """An op's public function, its definition, the shapes of its inputs, and its options."""

    op: Callable
    reference: Callable
    shapes: tuple[tuple[int, ...], ...]
    options: tuple = ()


def examples(
    size: int, heads: int, intermediate_size: int, candidates: int, with_gradients: bool
) -> dict[str, Example]:
    """The ops as a model of these sizes calls them. Without gradients there is no dropout, and log p̃ is not
    gathered by kernels."""
    row, rows = (size,), (3, COMPOSITIONS, size)
    found = {
        "blend_norm": Example(
            blend_norm, blend_norm_reference, ((COMPOSITIONS, 2), (COMPOSITIONS, size), (COMPOSITIONS, size)), (1e-5,)
        ),
        "choose": Example(
            _with_noise(choose),
            _with_noise(choose_reference),
            ((COMPOSITIONS, candidates, size), (COMPOSITIONS, candidates)),
        ),
    }
    for width in (size, 3 * size, *([1] if with_gradients else [])):  # of nodes: vectors, projections, log p̃
        found[f"gather_children of width {width}"] = Example(
            _with_ids(gather_children), _with_ids(gather_children_reference), ((COMPOSITIONS, width), (2, width))
        )
    for dropout in (0.0, 0.1) if with_gradients else (0.0,):
        name = " with dropout" if dropout else ""
        for tasks in (1, 2):
            shapes = (tasks + 2, COMPOSITIONS, 3 * size), (tasks + 2, 3 * size)
            found[f"composition_attention of {tasks} tasks{name}"] = Example(
                composition_attention, composition_attention_reference, shapes, (heads, dropout, 7)
            )
        found[f"residual_norm{name}"] = Example(
            residual_norm, residual_norm_reference, (rows, row, rows), (1e-5, dropout, 7)
        )
        found[f"bias_gelu{name}"] = Example(
            bias_gelu, bias_gelu_reference, ((3, COMPOSITIONS, intermediate_size), (intermediate_size,)), (dropout, 7)
        )
    return found


def _with_noise(choose: Callable) -> Callable:
    return lambda vectors, candidates: choose(vectors, candidates, candidates.detach().flip(1))


def _with_ids(gather: Callable) -> Callable:
    """Two nodes are each a child of two compositions."""
    return lambda nodes, tasks: gather(nodes, tasks, *torch.tensor([[3, 0, 1], [1, 4, 3]], device=nodes.device))


def first_fault(
    device: torch.device, dtype: torch.dtype, sizes: tuple[int, int, int, int] | None, with_gradients: bool = True
) -> str | None:
    """What is wrong with the first op that disagrees with its definition or fails; None if all agree.

    Args:
        sizes: the model's hidden size, number of heads, intermediate size and window.
        with_gradients: whether backward passes, and dropout, are checked as well.

    Torch's random numbers and the mode of the caller (gradients, inference, autocast) neither change nor matter.
    """
    if sizes is None:  # models saved by older versions ask for an op on split scores
        return "the kernel range_logsumexp is gone"
    for name, example in examples(*sizes, with_gradients).items():
        try:
            error = _largest_error(example, device, dtype, with_gradients)
        except torch.OutOfMemoryError:
            raise  # it says nothing about the kernel
        except Exception as fault:  # whatever a compiler, a driver or a launch raises: torch can do without the kernel
            return f"the kernel {name} fails: {type(fault).__name__}: {fault}"
        if not error <= TOLERANCE[dtype]:  # NaN is a fault
            return f"the kernel {name} gives wrong numbers: relative error {error:.1e}"
    return None


def describe_place(device: torch.device, dtype: torch.dtype) -> str:
    """Device, dtype and versions, for a report."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    version = triton.__version__ if HAS_TRITON else "none"
    return f"{name}, {str(dtype).removeprefix('torch.')}, torch {torch.__version__}, Triton {version}"


def _largest_error(example: Example, device: torch.device, dtype: torch.dtype, with_gradients: bool) -> float:
    """Of outputs, and of gradients if asked for; the definition gets the same inputs in float64."""
    generator = torch.Generator("cpu").manual_seed(0)
    with (
        torch.inference_mode(False),
        torch.set_grad_enabled(with_gradients),
        torch.autocast(device.type, enabled=False),
        torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, lambda saved: saved),  # not a checkpoint's
    ):
        drawn = [torch.randn(shape, generator=generator, device="cpu").to(device, dtype) for shape in example.shapes]
        ours = _results(example.op, drawn, example.options)
        expected = _results(example.reference, [tensor.double() for tensor in drawn], example.options)
        errors = [
            (our.double() - their.double()).norm() / their.double().norm().clamp(min=1e-12)
            for our, their in zip(ours, expected, strict=True)
        ]
        return torch.stack(errors).max().item()


def _results(function: Callable, inputs: list[Tensor], options: tuple) -> list[Tensor]:
    """Outputs, and with gradients those of the inputs, for drawn gradients of the outputs, exact in every dtype."""
    generator = torch.Generator("cpu").manual_seed(1)
    leaves = [tensor.clone().requires_grad_(torch.is_grad_enabled()) for tensor in inputs]
    outputs = function(*leaves, *options)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    if not torch.is_grad_enabled():
        return list(outputs)
    real = [output for output in outputs if output.is_floating_point()]
    arriving = [torch.randn(output.shape, generator=generator, device="cpu").bfloat16().to(output) for output in real]
    grads = torch.autograd.grad(real, leaves, arriving, allow_unused=True)
    return [*(output.detach() for output in outputs), *(grad for grad in grads if grad is not None)]
