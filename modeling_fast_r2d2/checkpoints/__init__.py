"""Checkpoints: the folders beside this file, which come with the package, and downloads from the Hub."""

from .folders import DEFAULT_CHECKPOINT, bundled_checkpoint, download, find_checkpoint, load_model, load_tokenizer

__all__ = ["DEFAULT_CHECKPOINT", "bundled_checkpoint", "download", "find_checkpoint", "load_model", "load_tokenizer"]
