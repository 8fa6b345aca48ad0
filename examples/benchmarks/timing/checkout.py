"""Importing the packages of one checkout of the project, whichever checkout is installed.

Nothing here imports the project, because a process that uses a checkout must not have imported another one before.
"""

import subprocess
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path

PACKAGES = {  # as in setup.py
    "modeling_fast_r2d2": "modeling_fast_r2d2",
    "tokenization_fast_r2d2": "tokenization",
    "fast_r2d2_kernels": "kernels/fast_r2d2_kernels",
}


class CheckoutFinder(MetaPathFinder):
    """Finds the project's packages in one checkout; their modules are then found by the packages' paths."""

    def __init__(self, root: Path):
        self.root = root

    def find_spec(self, fullname: str, path=None, target=None) -> ModuleSpec | None:
        if fullname not in PACKAGES:
            return None
        folder = self.root / PACKAGES[fullname]
        return spec_from_file_location(fullname, folder / "__init__.py", submodule_search_locations=[str(folder)])


def use_checkout(root: Path) -> None:
    """Import the project from this checkout from now on.

    Raises:
        ValueError: if the folder is no checkout, or if the project is already imported.
    """
    check_checkout(root)
    imported = sorted(PACKAGES.keys() & sys.modules.keys())
    if imported:
        raise ValueError(f"{', '.join(imported)} is already imported, from {sys.modules[imported[0]].__file__}")
    sys.meta_path.insert(0, CheckoutFinder(root.resolve()))


def check_checkout(root: Path) -> None:
    """Raise ValueError if the folder is no checkout of the project."""
    missing = [folder for folder in PACKAGES.values() if not (root / folder / "__init__.py").is_file()]
    if missing:
        raise ValueError(f"{root} is no checkout of the project: there is no package in {', '.join(missing)}")


def imported_files() -> list[str]:
    """Files of the project's modules that are imported."""
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] in PACKAGES]
    return sorted(module.__file__ for module in modules if getattr(module, "__file__", None))


def revision(root: Path) -> str:
    """The commit and whether files differ from it, or the folder's name if it has no git history."""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return root.resolve().name
