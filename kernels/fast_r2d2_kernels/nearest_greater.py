"""The nearest split points of greater rank on both sides of each split point, found in a tree of maxima.

The tree is stored as a heap: node 1 is the root, and the children of node ``i`` are ``2 * i`` and ``2 * i + 1``. The
ranks are the leaves, and each node holds the maximum of the leaves below it. A search climbs from a leaf until the
neighbour on the searched side holds a greater rank, then descends to the nearest leaf with a greater rank.
"""

import torch
from torch import Tensor

from .launch import on_device_of, operator, power_of_2, runs_fused, tl, triton, wrap_triton

BLOCK = 256  # positions per program of the search
LARGEST_SUBTREE = 1024  # leaves of the subtree that one program fills


def nearest_greater_reference(ranks: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The definition of `nearest_greater`, which searches from each token in turn."""
    fenced = [len(ranks), *ranks.tolist()]  # position -1 is a sentence end

    def search(token: int, step: int) -> list[int]:
        found, position = [], token
        for _ in range(count):
            while fenced[position + 1] < len(ranks):
                position += step
                if fenced[position + 1] > fenced[token + 1]:
                    break
            found.append(position)
        return found

    def search_all(step: int) -> Tensor:
        found = [search(token, step) for token in range(len(ranks))]
        return torch.tensor(found, device=ranks.device).view(-1, count).t().contiguous()

    return search_all(-1), search_all(1)


def nearest_greater(ranks: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` nearest positions of greater rank to the left and to the right of each position.

    The time is ``num_tokens * count * log(num_tokens)`` for any ranks; the memory is two to four integers per token.

    Args:
        ranks: ``(num_tokens,)`` long. Ranks are distinct and less than ``num_tokens``, except at sentence ends, where
            they are ``num_tokens``. The last position is a sentence end.
        count: the number of positions to find on each side, at least 1.

    Returns:
        Two ``(count, num_tokens)`` long tensors, for left and right, nearest first. A search stops at a sentence end,
        which fills the remaining entries. A search from a sentence end gives that position itself. Position -1 stands
        for a sentence end before the first token.

    Raises:
        ValueError: if ``count`` is below 1.
    """
    if count < 1:
        raise ValueError(f"count must be >= 1, got {count}")
    if not runs_fused(ranks):
        return nearest_greater_reference(ranks, count)
    return _nearest_greater_both(ranks.contiguous(), count).unbind()


@triton.jit(do_not_specialize=["row"])
def _maxima_kernel(heap, row, LEAVES: tl.constexpr, HEIGHT: tl.constexpr):
    """Fill the subtree above ``LEAVES = 2 ** HEIGHT`` nodes of the row of the tree that begins at node ``row``."""
    part = tl.program_id(0)
    maxima = tl.load(heap + row + part * LEAVES + tl.arange(0, LEAVES))
    for height in tl.static_range(1, HEIGHT + 1):
        maxima = tl.max(tl.reshape(maxima, (LEAVES >> height, 2)), 1)
        tl.store(heap + (row >> height) + part * (LEAVES >> height) + tl.arange(0, LEAVES >> height), maxima)


@triton.jit(do_not_specialize=["num_tokens", "leaves", "height"])
def _search_kernel(heap, found, num_tokens, leaves, height, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """Search from a block of positions; program 0 on the second axis searches to the left, program 1 to the right."""
    to_right = tl.program_id(1)
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    rank = tl.load(heap + leaves + token, mask=token < num_tokens, other=0)
    position = token
    for number in range(COUNT):
        here = tl.load(heap + leaves + position, mask=(position >= 0) & (token < num_tokens), other=num_tokens)
        searches = here < num_tokens
        node = leaves + position
        has_passed = tl.zeros_like(searches)  # whether the search has crossed to a neighbour with a greater rank
        for _ in range(height):
            has_neighbour = ((node & 1) != to_right) & (node > 1) & searches & ~has_passed
            greatest = tl.load(heap + (node ^ 1), mask=has_neighbour, other=-1)
            passes = greatest > rank
            node = tl.where(passes, node ^ 1, tl.where(has_passed, node, node >> 1))
            has_passed |= passes
        for _ in range(height):
            descends = has_passed & (node < leaves)
            near = 2 * node + 1 - to_right
            greatest = tl.load(heap + near, mask=descends, other=-1)
            node = tl.where(descends, tl.where(greatest > rank, near, near ^ 1), node)
        position = tl.where(searches, tl.where(has_passed, node - leaves, -1), position)
        target = found + (to_right * COUNT + number).to(tl.int64) * num_tokens + token
        tl.store(target, position.to(tl.int64), mask=token < num_tokens)


@operator("nearest_greater", mutates_args=())
def _nearest_greater_both(ranks: Tensor, count: int) -> Tensor:
    num_tokens = len(ranks)
    found = ranks.new_empty(2, count, num_tokens)
    if not num_tokens:
        return found
    leaves = power_of_2(num_tokens)
    heap = torch.full((2 * leaves,), num_tokens, dtype=torch.int32, device=ranks.device)
    heap[leaves : leaves + num_tokens] = ranks
    with on_device_of(ranks):
        row = leaves
        while row > 1:
            subtree = min(row, LARGEST_SUBTREE)
            height = subtree.bit_length() - 1
            wrap_triton(_maxima_kernel)[(row // subtree,)](heap, row, LEAVES=subtree, HEIGHT=height, num_warps=4)
            row //= subtree
        wrap_triton(_search_kernel)[(-(-num_tokens // BLOCK), 2)](
            heap, found, num_tokens, leaves, leaves.bit_length() - 1, COUNT=count, BLOCK=BLOCK, num_warps=4
        )
    return found


@_nearest_greater_both.register_fake
def _(ranks: Tensor, count: int) -> Tensor:
    return ranks.new_empty(2, count, len(ranks))
