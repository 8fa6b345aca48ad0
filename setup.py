"""Folders keep the names that a reader looks for; this maps them to import names. All else is in pyproject.toml."""

from setuptools import find_packages, setup

setup(
    package_dir={
        "modeling_fast_r2d2": "modeling_fast_r2d2",
        "tokenization_fast_r2d2": "tokenization",
        "fast_r2d2_kernels": "kernels/fast_r2d2_kernels",
        "fast_r2d2_spacy": "spacy_entry_point",
        "fast_r2d2_command_line": "command_line",
    },
    packages=[
        *find_packages(include=["modeling_fast_r2d2", "modeling_fast_r2d2.*"]),
        "tokenization_fast_r2d2",
        "fast_r2d2_kernels",
        "fast_r2d2_spacy",
        "fast_r2d2_command_line",
    ],
    package_data={
        "modeling_fast_r2d2": ["py.typed", "checkpoints/*/*"],
        "modeling_fast_r2d2.pictures": ["report.html"],
        "tokenization_fast_r2d2": ["py.typed"],
        "fast_r2d2_kernels": ["py.typed"],
        "fast_r2d2_spacy": ["py.typed"],
    },
)
