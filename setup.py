"""Packaging. Folders keep the names a reader looks for; `package_dir` maps them to import names."""

from pathlib import Path

from setuptools import setup

TRAIN = ["accelerate>=1.1", "datasets>=3.0", "tensorboard", "matplotlib"]
EVAL = ["evaluate>=0.4", "scikit-learn", "scipy"]
SPACY = ["spacy>=3.8"]
KERNELS = ['triton; platform_system == "Linux"']
# kernels: Hugging Face's library, through which the tests load ours; no relation to the extra of that name.
TEST = ["kernels>=0.17", "pytest>=8", "pytest-xdist", "hypothesis>=6.100", "ruff>=0.8"]

setup(
    name="fast-r2d2",
    version="0.1.0",
    description="Fast-R2D2: unsupervised constituency trees and recursive sentence vectors, as transformers models",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    package_dir={
        "modeling_fast_r2d2": "modeling_fast_r2d2",
        "tokenization_fast_r2d2": "tokenization",
        "fast_r2d2_kernels": "kernels/fast_r2d2_kernels",
    },
    packages=[
        "modeling_fast_r2d2",
        "modeling_fast_r2d2.checkpoints",
        "modeling_fast_r2d2.command_line",
        "modeling_fast_r2d2.grammar_induction",
        "modeling_fast_r2d2.parsing",
        "modeling_fast_r2d2.pictures",
        "modeling_fast_r2d2.text_files",
        "tokenization_fast_r2d2",
        "fast_r2d2_kernels",
    ],
    package_data={"modeling_fast_r2d2": ["checkpoints/*/*"], "modeling_fast_r2d2.pictures": ["report.html"]},
    entry_points={"console_scripts": ["fast-r2d2 = modeling_fast_r2d2.command_line:main"]},
    install_requires=[
        "torch>=2.6",
        "transformers>=5.17,<6",
        "safetensors",
        "huggingface_hub",
        "numpy",
        "nltk",
    ],
    extras_require={
        "train": TRAIN,
        "eval": EVAL,
        "kernels": KERNELS,
        "spacy": SPACY,
        "test": TEST + TRAIN + EVAL + SPACY + KERNELS,
    },
    classifiers=[
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
    ],
)
