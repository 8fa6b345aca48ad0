"""Streams in lists of several items."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def chunks(items: Iterable[Item], size: int, largest: int | None = None) -> Iterator[list[Item]]:
    """Lists of successive items. If the stream fails, what came before is given first, and then the error.

    Args:
        size: the number of items of the first list.
        largest: every list is four times as long as the one before it, up to this number of items. Short lists at the
            beginning give the first results soon. None keeps the first size.

    Raises:
        ValueError, OSError: as the stream raises them.
    """
    chunk: list[Item] = []
    try:
        for item in items:
            chunk.append(item)
            if len(chunk) == size:
                yield chunk
                chunk, size = [], min(4 * size, largest or size)
    except (ValueError, OSError):
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk
