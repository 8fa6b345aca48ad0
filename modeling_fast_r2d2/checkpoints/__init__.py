"""Where checkpoints come from: the folders beside this file, and the Hub."""

from .bundled import bundled_checkpoint, find_checkpoint
from .hub import download

__all__ = ["bundled_checkpoint", "download", "find_checkpoint"]
