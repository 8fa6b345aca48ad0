"""The constituents at the right edge of a tree, and what attaches to them. Trees are lists of spans, by split point."""

from tokenization_fast_r2d2.trees import Span


def splits_to_the_right(spans: list[Span], span: Span) -> list[int]:
    """Where a constituent splits, then its right part, and so on."""
    split_of, (first, last) = {found: split for split, found in enumerate(spans)}, span
    splits: list[int] = []
    while first < last:
        splits.append(split_of[first, last])
        first = splits[-1] + 1
    return splits


def attach(spans: list[Span], split: int, start: int) -> None:
    """Change a tree, so that the right part of the constituent at a split point attaches to that constituent at the
    right edge of the left part which begins at ``start``: ``((a (b c)) d)`` becomes ``(a ((b c) d))``."""
    first, last = spans[split]
    for outer in splits_to_the_right(spans, (first, split)):
        if first == start:
            break
        spans[outer] = (first, last)
        first = outer + 1
    spans[split] = (start, last)
