"""The one walk over a chart's levels: forced encoding is the chart of window 1 (paper, Sections 2.1 and 3.3).

How levels are encoded is chosen once per encoding, by `nodes_for`; what it chose may take small levels a simpler way.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .chart import Chart, Level
from .children_apart import NodesApart
from .children_apart import read_out as read_out_apart
from .choice import Nodes
from .composition import Composition, CompositionStack
from .cpu_operations import is_plain
from .fused import FusedNodes, kernels_for
from .fused import read_out as read_out_by_kernels
from .torch_internals import has_global_hooks, has_hooks, is_compiled, is_transformed

# On a CPU, levels of more compositions than this are encoded in parts. In evaluation larger parts take more memory and
# the same time. In training every part adds to the gradients of the weights, so parts are larger; 1,024 to 8,192 took
# the same time in the tiny size.
MAX_COMPOSITIONS, MAX_COMPOSITIONS_IN_TRAINING = 256, 2048
# On a GPU only memory asks for parts, and only without gradients, which keep what every part computes. Of the base size
# in bfloat16, a composition takes about 80 kB on its way, so this many take 1.3 GB.
MAX_COMPOSITIONS_ON_GPU = 2**14


@dataclass
class EncodedChart:
    """The vectors and probabilities of a chart's nodes; node ids as in `Chart`.

    Attributes:
        nodes: ``(num_nodes, hidden_size)``, a vector for every node.
        log_prob: ``(num_nodes,)`` float32 or wider, nats: log p̃ of each node's chosen subtree; None when forced.
        candidate_log_prob: ``(num_cells, window)``, log p̃ of every candidate, -inf past the last one;
            None when forced.
        chosen: ``(num_cells,)`` long, the candidate that each cell took.
    """

    nodes: Tensor
    log_prob: Tensor | None
    candidate_log_prob: Tensor | None
    chosen: Tensor

    def choices(self) -> Tensor:
        """``candidate_log_prob``; raises ValueError for a forced encoding, which chooses nothing."""
        if self.candidate_log_prob is None:
            raise ValueError("forced encoding has no candidates to choose from; use encoding='chart'")
        return self.candidate_log_prob


def encode_forced(chart: Chart, leaves: Tensor, composition: Composition, tasks: Tensor) -> EncodedChart:
    """Encode along the trees of `plan_tree`: ``n - 1`` compositions a sentence, no probabilities.

    Args:
        leaves: ``(num_tokens, hidden_size)``, token embeddings, sentences end to end.
        tasks: ``(2, hidden_size)``, the embeddings of ``[CLS]`` and ``[SUM]``.
    """
    nodes = nodes_for(composition, leaves, tasks[1:], chart.num_nodes, chart, has_choice=False)
    for level in levels_in_parts(chart, nodes):
        parents, _ = nodes.compose(level)
        nodes.write(level, parents)
    return EncodedChart(nodes.all_vectors(), None, None, chart.roots.new_zeros(chart.num_cells))


def encode_chart(
    chart: Chart,
    leaves: Tensor,
    composition: Composition,
    tasks: Tensor,
    choice_noise: float = 0.0,
    vectors_train_choice: bool = True,
) -> EncodedChart:
    """Encode every cell from its chosen candidate, level by level (paper, Equations 1 to 5).

    Args:
        leaves, tasks: as for `encode_forced`.
        choice_noise: scale of the Gumbel noise on the choice.
        vectors_train_choice: whether the gradient of a cell's vector reaches the choice of its candidate.
    """
    window, candidates = chart.splits.shape[1], []
    chosen = chart.roots.new_zeros(chart.num_cells)
    nodes = nodes_for(composition, leaves, tasks, chart.num_nodes, chart)
    for level in levels_in_parts(chart, nodes):
        cells = nodes.encode_level(level, choice_noise, vectors_train_choice)
        nodes.write(level, cells.vectors, cells.log_prob)
        chosen[level.cells] = cells.chosen
        missing = window - level.left.shape[1]
        candidates.append(F.pad(cells.candidates, (0, missing), value=float("-inf")))
    dtype = torch.promote_types(leaves.dtype, torch.float32)
    candidate_log_prob = torch.cat([leaves.new_empty(0, window, dtype=dtype), *candidates])
    return EncodedChart(nodes.all_vectors(), nodes.log_prob.all(), candidate_log_prob, chosen)


def levels_in_parts(chart: Chart, nodes: Nodes) -> Iterator[Level]:
    """Levels from the lowest up; large ones in parts, unless the reads of a whole level were sorted."""
    at_once = sys.maxsize if nodes.reads else compositions_at_once(chart.roots.device)
    for level in chart.levels:
        most = max(at_once // level.left.shape[1], 1)
        for start in range(0, len(level.left), most):
            part = slice(start, start + most)
            cells = slice(level.cells.start + start, min(level.cells.start + part.stop, level.cells.stop))
            yield Level(cells, level.left[part], level.right[part])


def compositions_at_once(device: torch.device) -> int:
    if device.type == "cpu":
        return MAX_COMPOSITIONS_IN_TRAINING if torch.is_grad_enabled() else MAX_COMPOSITIONS
    return sys.maxsize if torch.is_grad_enabled() else MAX_COMPOSITIONS_ON_GPU


def read_out(stack: CompositionStack, task: Tensor, children: Tensor) -> Tensor:
    """The output of a stack at one task token.

    Args:
        task: ``(1, hidden_size)``.
        children: ``(2, compositions, hidden_size)``, left and right.

    Returns:
        ``(compositions, hidden_size)``.
    """
    if is_unchanged(stack):
        kernels = kernels_for(stack, children)
        if kernels is not None:
            return read_out_by_kernels(kernels, stack, task, children)
        if not is_checkpointed(stack):
            return read_out_apart(stack, task, children)
    return stack(stack.prepare(task), children)[0]


def nodes_for(
    composition: Composition, leaves: Tensor, tasks: Tensor, num_nodes: int, chart: Chart | None = None,
    has_choice: bool = True,
) -> Nodes:  # fmt: skip
    """What encodes the levels of one chart: the definition, or what computes the same faster.

    Args:
        leaves, tasks, num_nodes: as for `Nodes`.
        chart: whose levels will be encoded; None where they are not known yet.
        has_choice: whether cells have more than one candidate.
    """
    if is_unchanged(composition):
        kernels = kernels_for(composition.stack, leaves)
        if kernels is not None:
            return FusedNodes(kernels, composition, leaves, tasks, num_nodes, chart, has_choice)
        if has_choice and not is_checkpointed(composition.stack):
            return NodesApart(composition, leaves, tasks, num_nodes)
    return Nodes(composition, leaves, tasks, num_nodes)


def is_unchanged(module: Composition | CompositionStack) -> bool:
    """Whether nothing but its own code has a part in what a module computes: no compiler, no functional transform, no
    hook that wants to see a layer's input, no adapter or quantised layer in place of a linear one, no other forward
    pass."""
    if type(module) not in (Composition, CompositionStack):
        return False
    stack = module.stack if isinstance(module, Composition) else module
    linears = [linear for layer in stack.layers for linear in layer.linears]
    modules: list[nn.Module] = [module, stack, *stack.layers, *linears]
    return (
        not torch.compiler.is_compiling()
        and not is_transformed()
        and not has_global_hooks()
        and all(map(is_plain, linears))
        and not any(has_hooks(each) or is_compiled(each) for each in modules)
    )


def is_checkpointed(stack: CompositionStack) -> bool:
    """Whether whole layers are computed again in the backward pass."""
    return any(layer.gradient_checkpointing and layer.training for layer in stack.layers)
