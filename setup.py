"""Folders keep the names that a reader looks for; this maps them to import names. All else is in pyproject.toml."""

from setuptools import find_packages, setup

FOLDERS = {
    "modeling_fast_r2d2": "modeling_fast_r2d2",
    "fast_r2d2_entry_points": "modeling_fast_r2d2/entry_points",  # its docstring says why it is a package of its own
    "tokenization_fast_r2d2": "tokenization",
    "fast_r2d2_kernels": "kernels/fast_r2d2_kernels",
}
library = find_packages(include=["modeling_fast_r2d2", "modeling_fast_r2d2.*"])

setup(
    package_dir=FOLDERS,
    packages=[
        *(name for name in library if ".entry_points" not in name),
        "fast_r2d2_entry_points",
        "fast_r2d2_entry_points.command_line",
        "tokenization_fast_r2d2",
        "fast_r2d2_kernels",
    ],
    package_data={
        **{name: ["py.typed"] for name in FOLDERS},
        "modeling_fast_r2d2": ["py.typed", "checkpoints/*/*"],
        "modeling_fast_r2d2.pictures": ["report.html"],
    },
)
