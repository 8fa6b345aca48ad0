"""Files: read line by line, written completely or not at all, with checksums; folders that one run holds."""

from tokenization_fast_r2d2.lines import LONGEST_LINE, decode_lines, read_lines, read_sentences, too_long

from .atomic_write import disk_errors, write_aside, write_text
from .checksums import check_is_file, checksum, read_record
from .chunks import chunks
from .folder_lock import LOCK_FILE, OWNER_FILE, hold_folder

__all__ = [
    "LOCK_FILE",
    "LONGEST_LINE",
    "OWNER_FILE",
    "check_is_file",
    "checksum",
    "chunks",
    "decode_lines",
    "disk_errors",
    "hold_folder",
    "read_lines",
    "read_record",
    "read_sentences",
    "too_long",
    "write_aside",
    "write_text",
]
