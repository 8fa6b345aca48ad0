"""Checkpoints that come with the package."""

from pathlib import Path

FOLDER = Path(__file__).parent


def bundled_names() -> list[str]:
    return sorted(path.parent.name for path in FOLDER.glob("*/config.json"))


def bundled_checkpoint(name: str = "fast-r2d2-tiny") -> str:
    """Folder of a checkpoint that comes with the package, for ``from_pretrained``.

    Raises:
        ValueError: naming the bundled checkpoints, if there is none of that name.
    """
    if name not in bundled_names():
        raise ValueError(f"bundled checkpoints are {', '.join(bundled_names())}, got {name!r}")
    return str(FOLDER / name)


def find_checkpoint(name: str) -> str:
    """The bundled checkpoint of that name; any other name, and a folder that is there, as it is."""
    return bundled_checkpoint(name) if name in bundled_names() and not Path(name).exists() else name


__all__ = ["bundled_checkpoint", "find_checkpoint"]
