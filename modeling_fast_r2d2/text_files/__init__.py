"""Files that are written completely or not at all, with checksums, and folders that one run holds."""

from .files import check_is_file, checksum, disk_errors, read_record, write_aside, write_text
from .folder_lock import LOCK_FILE, OWNER_FILE, hold_folder

__all__ = [
    "LOCK_FILE", "OWNER_FILE", "check_is_file", "checksum", "disk_errors", "hold_folder", "read_record", "write_aside",
    "write_text",
]  # fmt: skip
