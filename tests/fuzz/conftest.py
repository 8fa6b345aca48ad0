"""The numbers of what the fuzzers drew."""

import json
import os
from collections import Counter

import pytest

_drawn: Counter[str] = Counter()


@pytest.fixture
def drawn() -> Counter[str]:
    """Numbers of what was drawn, by kind; `run.py` adds them up."""
    return _drawn


def pytest_sessionfinish() -> None:
    if path := os.environ.get("FUZZ_NUMBERS"):
        with open(path, "w", encoding="utf-8") as file:
            json.dump(_drawn, file)
