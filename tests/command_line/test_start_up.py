"""Help and complaints appear at once: they need no torch. Threads are as many as a model is worth."""

import json
import subprocess
import sys

import pytest
import torch

import fast_r2d2_entry_points.command_line.options as written_twice
from fast_r2d2_entry_points.command_line import main, parse
from fast_r2d2_entry_points.command_line.model import use_threads
from modeling_fast_r2d2.grammar_induction.alignment import GRANULARITIES
from modeling_fast_r2d2.grammar_induction.systems import BASELINES
from modeling_fast_r2d2.grammar_induction.treebanks import PTB_SECTIONS
from modeling_fast_r2d2.parsing_pipeline import METHODS
from tokenization_fast_r2d2.lines import LONGEST_LINE

LIGHT = """
import json, sys
from fast_r2d2_entry_points.command_line import main
try:
    main(json.loads(sys.argv[1]))
except SystemExit:
    pass
heavy = {"numpy", "torch", "transformers", "nltk", "tqdm", "spacy", "huggingface_hub", "modeling_fast_r2d2"}
print(sorted(heavy & set(sys.modules)))
"""


@pytest.mark.parametrize("arguments", [
    ["--help"], ["--version"], ["parse", "--help"], ["evaluate", "--help"], ["report", "--help"], ["convert", "--help"],
    ["convert", "weights", "--help"], ["parse"], ["parse", "--file", "nowhere.txt"], ["parse", "a", "--threads", "0"],
    ["parse", "a", "--checkpoint", "runs/nowhere/model"], ["evaluate", "gold", "--checkpoint", "/nowhere"],
])  # fmt: skip
def test_nothing_heavy_is_imported_before_it_is_needed(arguments):
    result = subprocess.run([sys.executable, "-c", LIGHT, json.dumps(arguments)], capture_output=True, text=True)
    assert result.returncode == 0 and result.stdout.splitlines()[-1] == "[]", result.stdout + result.stderr


def test_the_options_offer_what_the_library_has():
    assert METHODS == written_twice.METHODS and BASELINES == written_twice.BASELINES
    assert GRANULARITIES == written_twice.GRANULARITIES and list(PTB_SECTIONS) == list(written_twice.SPLITS)
    assert parse.LONGEST_LINE == LONGEST_LINE


def test_a_missing_library_is_named_with_its_extra(error_of, monkeypatch, tmp_path):
    monkeypatch.setattr(written_twice, "find_spec", lambda name: None)
    (tmp_path / "a.txt").write_text("a b c\n")
    monkeypatch.setenv("WORLD_SIZE", "2")
    error = error_of("parse", "--file", str(tmp_path / "a.txt"), "--output", str(tmp_path / "trees"))
    assert "parsing with several processes needs accelerate: pip install 'fast-r2d2[train]'" in error


def test_one_process_parses_shards_without_accelerate(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "accelerate", None)  # importing it fails
    (tmp_path / "a.txt").write_text("a b c\n\nthe cat sat\n")
    main(["parse", "--file", str(tmp_path / "a.txt"), "--output", str(tmp_path / "trees")])
    assert len((tmp_path / "trees" / "000000.txt").read_text().splitlines()) == 3


@pytest.mark.parametrize("given, environment, parameters, expected", [
    (None, None, 1_000_000, 1), (3, None, 1_000_000, 3), (None, "2", 1_000_000, 2), (1, "2", 1_000_000, 1),
    (None, None, 9_600_000, 2),
])  # fmt: skip
def test_a_tiny_model_takes_one_thread_unless_told(model, monkeypatch, given, environment, parameters, expected):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if environment:
        monkeypatch.setenv("OMP_NUM_THREADS", environment)
    monkeypatch.setattr(type(model), "num_parameters", lambda self: parameters)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    use_threads(given, model)
    assert torch.get_num_threads() == expected
    torch.set_num_threads(before)


@pytest.mark.slow
def test_importing_the_library_brings_nothing_beyond_torch_and_a_transformers_model():
    code = """
import sys, torch, transformers.models.bert.modeling_bert
known = {name.split(".")[0] for name in sys.modules}
import modeling_fast_r2d2
print(*{name.split(".")[0] for name in sys.modules} - known)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert sorted(result.stdout.split()) == ["modeling_fast_r2d2", "tokenization_fast_r2d2"], result.stderr
