"""The packages of one checkout of the project, whichever is installed.

Nothing here imports the project: a process that is to use a checkout must not have begun with another.
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
    """Finds the project's packages in one checkout; what is in them is then found by their paths."""

    def __init__(self, root: Path):
        self.root = root

    def find_spec(self, fullname: str, path=None, target=None) -> ModuleSpec | None:
        if fullname not in PACKAGES:
            return None
        folder = self.root / PACKAGES[fullname]
        return spec_from_file_location(fullname, folder / "__init__.py", submodule_search_locations=[str(folder)])


def use_checkout(root: Path) -> None:
    """From now on the project is imported from here.

    Raises:
        ValueError: if that is no checkout, or it is too late.
    """
    check_checkout(root)
    imported = sorted(PACKAGES.keys() & sys.modules.keys())
    if imported:
        raise ValueError(f"{', '.join(imported)} is already imported, from {sys.modules[imported[0]].__file__}")
    sys.meta_path.insert(0, CheckoutFinder(root.resolve()))


def check_checkout(root: Path) -> None:
    missing = [folder for folder in PACKAGES.values() if not (root / folder / "__init__.py").is_file()]
    if missing:
        raise ValueError(f"{root} is no checkout of the project: there is no package in {', '.join(missing)}")


def imported_files() -> list[str]:
    """Of the project's modules."""
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] in PACKAGES]
    return sorted(module.__file__ for module in modules if getattr(module, "__file__", None))


def revision(root: Path) -> str:
    """The commit, and whether files differ from it; the folder's name where there is no history."""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return root.resolve().name
