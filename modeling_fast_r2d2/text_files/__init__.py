"""Text files: read line by line, and written completely or not at all."""

from .atomic_write import write_aside, write_text
from .lines import decode_lines, read_lines, read_sentences

__all__ = ["decode_lines", "read_lines", "read_sentences", "write_aside", "write_text"]
