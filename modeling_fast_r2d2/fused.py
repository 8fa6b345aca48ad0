"""The same encoding by the fused kernels of `fast_r2d2_kernels`, on a GPU.

Vectors have the dtype in which kernels compute, autocast's or the weights' own, from level to level. Weights are cast
to it once for all levels.
"""

import warnings
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from .chart import Chart, Level, sorted_children
from .choice import Nodes
from .composition import Composition, CompositionStack, in_front
from .node_rows import SortedReads

# The sizes of a model that decide what is compiled for it: hidden size, heads, intermediate size and window.
KernelSizes = tuple[int, int, int, int]


def fused_kernels(composition_kernels: str, vectors: Tensor, sizes: KernelSizes) -> Any:
    """The module of fused kernels if they run for vectors, None if torch's own operations do.

    Before kernels are used on a device, in a dtype and for a model's sizes for the first time, they are compared with
    their definitions: their backward passes when gradients are first asked for.

    Args:
        composition_kernels: of the configuration; ``"auto"`` means fused kernels on a GPU where Triton is installed and
            the kernels give right numbers.
        vectors: ``(..., hidden_size)``.
        sizes: of the model.

    Raises:
        ValueError: if ``"triton"`` was asked for and cannot run.
        RuntimeError: if ``"triton"`` was asked for and a kernel fails or gives wrong numbers.
    """
    is_idle = composition_kernels == "auto" and not vectors.is_cuda
    if composition_kernels == "torch" or vectors.dtype == torch.float64 or is_idle:
        return None
    kernels = _load()
    if kernels is not None and kernels.runs_fused(vectors):
        place = str(vectors.device), vectors.dtype, sizes, torch.is_grad_enabled()
        fault = _find_fault(*place, composition_kernels == "triton")
        return kernels if fault is None else None
    if composition_kernels == "triton":
        raise ValueError(
            "composition_kernels='triton' needs a model on a GPU, Triton and the fast-r2d2 package; take 'auto' or "
            "'torch'"
        )
    _say_that_torch_runs("the fast-r2d2 package" if kernels is None else "Triton")
    return None


@cache
def _find_fault(
    device: str, dtype: torch.dtype, sizes: KernelSizes, with_gradients: bool, must_run: bool
) -> str | None:
    """What is wrong with the kernels, found once for all arguments; None if nothing is."""
    trust = _load().trust
    fault = trust.first_fault(torch.device(device), dtype, sizes, with_gradients)
    if fault is None:
        return None
    place = trust.describe_place(torch.device(device), dtype)
    if must_run:
        raise RuntimeError(f"{fault} ({place}); take composition_kernels='torch'")
    warnings.warn(f"{fault} ({place}); torch's operations run instead", RuntimeWarning, stacklevel=3)
    return fault


@cache
def _say_that_torch_runs(missing: str) -> None:
    warnings.warn(f"{missing} is not installed, so torch's operations run, which are slower", stacklevel=3)


@cache
def _load() -> Any:
    """Imported at first use, since Triton takes a second to import and a CPU does not need it."""
    try:
        import fast_r2d2_kernels
    except ImportError:  # as in a checkpoint's own code where nothing is installed
        return None
    return fast_r2d2_kernels


class FusedStack:
    """The layers of a composition stack by fused kernels.

    Args:
        vectors: whose dtype, under autocast autocast's, is that of all vectors between layers.
    """

    def __init__(self, kernels: Any, stack: CompositionStack, vectors: Tensor):
        self.kernels, self.layers, self.dtype = kernels, stack.layers, computing_dtype(vectors)
        self.weights = [kernels.composition_layer.LayerWeights.of(layer, self.dtype) for layer in stack.layers]

    def __call__(self, role_biases: tuple[Tensor, ...], hidden: Tensor, projected: Tensor | None = None) -> Tensor:
        """As `CompositionStack.forward`, with tasks in front of the children in both tensors."""
        for layer, weights, role_bias in zip(self.layers, self.weights, role_biases, strict=True):
            run = partial(self.kernels.layers.composition_layer, layer)
            if layer.gradient_checkpointing and layer.training:
                hidden = layer._gradient_checkpointing_func(run, hidden, role_bias, projected, *weights)
            else:
                hidden = run(hidden, role_bias, projected, *weights)
            projected = None
        return hidden


class FusedNodes(Nodes):
    """`Nodes` by fused kernels.

    On a chart the first layer projects each node once, however many compositions it is a child in. Where there are
    gradients, one sort of all children gives the order in which each level's are summed.

    Arguments are those of `encoder.nodes_for`.
    """

    def __init__(
        self, kernels: Any, composition: Composition, leaves: Tensor, tasks: Tensor, num_nodes: int,
        chart: Chart | None, has_choice: bool,
    ):  # fmt: skip
        self.kernels, self.dtype, self.has_choice = kernels, leaves.dtype, has_choice
        self.stack = FusedStack(kernels, composition.stack, leaves)
        super().__init__(composition, leaves.to(self.stack.dtype), tasks, num_nodes)
        if chart is not None and chart.num_cells and torch.is_grad_enabled():
            reads = zip(chart.levels, *sorted_children(chart), strict=True)
            self.reads = {level.cells.start: SortedReads(kernels, *of_level) for level, *of_level in reads}

    def compose(self, level: Level) -> tuple[Tensor, Tensor | None]:
        hidden = self._read(self.vectors, self.shared.tasks, level)
        projected = [self._read(rows, self.shared.projected_tasks, level) for rows in self.projections]
        *scored, summed, left, right = self.stack(self.shared.role_biases, hidden, *projected)
        parents = self.kernels.blend_norm(self.composition.blend(summed), left, right, self.composition.eps)
        return parents, self.composition.log_prob(scored[0]) if scored else None

    def choose(self, vectors: Tensor, candidates: Tensor, offsets: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        return self.kernels.choose(vectors, candidates, offsets)

    def write(self, level: Level, vectors: Tensor, log_prob: Tensor | None = None) -> None:
        super().write(level, vectors.to(self.stack.dtype), log_prob)

    def all_vectors(self) -> Tensor:
        return super().all_vectors().to(self.dtype)

    def project(self, vectors: Tensor) -> tuple[Tensor, ...]:
        return (self.composition.stack.layers[0].project(vectors),) if self.has_choice else ()

    def _read(self, rows: Any, tasks: Tensor, level: Level) -> Tensor:
        reads = self.reads.get(level.cells.start)
        return rows.read_with_tasks(tasks, level.left.flatten(), level.right.flatten(), reads, self.kernels)


def read_out(kernels: Any, stack: CompositionStack, task: Tensor, children: Tensor) -> Tensor:
    """As `encoder.read_out`."""
    shared, fused = stack.prepare(task), FusedStack(kernels, stack, children)
    return fused(shared.role_biases, in_front(task, children.to(fused.dtype)))[0]


def kernels_for(stack: CompositionStack, vectors: Tensor) -> Any:
    """`fused_kernels` for a stack and the vectors that it will compose; they compute GELU alone."""
    if not stack.layers[0].is_gelu:
        return None
    config, dtype = stack.config, computing_dtype(vectors)
    sizes = config.hidden_size, config.num_attention_heads, config.intermediate_size, min(config.window_size, 32)
    return fused_kernels(config.composition_kernels, vectors[:0].to(dtype), sizes)


def computing_dtype(vectors: Tensor) -> torch.dtype:
    device = vectors.device.type
    if vectors.dtype == torch.float64:  # which autocast leaves alone
        return vectors.dtype
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else vectors.dtype
