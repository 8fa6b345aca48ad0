"""Checkpoints that come with the package."""

from pathlib import Path

FOLDER = Path(__file__).parent
DEFAULT_CHECKPOINT = str(FOLDER / "fast-r2d2-tiny")  # not looked for at import


def bundled_names() -> list[str]:
    """The names of these checkpoints, sorted."""
    return sorted(path.parent.name for path in FOLDER.glob("*/config.json"))


def bundled_checkpoint(name: str = "fast-r2d2-tiny") -> str:
    """The folder of a checkpoint that comes with the package, for ``from_pretrained``.

    Raises:
        ValueError: if there is none of that name; the message lists those there are.
    """
    if name not in bundled_names():
        raise ValueError(f"bundled checkpoints are {', '.join(bundled_names())}, got {name!r}")
    return str(FOLDER / name)


def find_checkpoint(name: str) -> str:
    """The folder of the bundled checkpoint of that name. Other names, and existing paths, are returned unchanged."""
    return bundled_checkpoint(name) if name in bundled_names() and not Path(name).exists() else name


__all__ = ["bundled_checkpoint", "find_checkpoint"]
