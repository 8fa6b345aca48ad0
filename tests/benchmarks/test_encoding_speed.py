"""The speed table: its systems, its ratios and its files."""

import json

import encoding_speed
import pytest
import torch
from encoding_speed import BERT, FAIR_BERT, ON_A_CPU, ON_A_GPU, RANGES, make_systems

import measuring
from modeling_fast_r2d2 import FastR2D2Model

TINY = "--size tiny --device cpu --rounds 1".split()


def test_every_system_encodes_the_batch(tiny_config):
    model = FastR2D2Model(tiny_config).eval()
    batch = measuring.pad([[5, 6, 7, 8], [9, 10], [11, 12, 13]], "cpu")
    made = make_systems(model)
    with torch.inference_mode():
        encoded = {name: make()(batch) for name, make in made.items()}
    assert set(encoded) == {*ON_A_CPU, *ON_A_GPU, "R2D2"} and all(len(vectors) == 3 for vectors in encoded.values())
    for name in ("Fast-R2D2*", "Fast-R2D2"):
        torch.testing.assert_close(encoded[name], encoded[f"{name}, no kernels"])
    assert not any("our products" in name for name in ON_A_GPU)  # all have torch's there


def test_ratios_are_to_the_fair_bert_or_else_to_the_plain_one(monkeypatch):
    times = {name: {"seconds": seconds} for name, seconds in ((BERT, 4.0), (FAIR_BERT, 2.0), ("mine", 3.0))}
    monkeypatch.setattr(measuring, "take_turns", lambda functions, rounds: {name: times[name] for name in functions})
    options = encoding_speed.parse_arguments(TINY)
    expected = {(FAIR_BERT, BERT, "mine"): [1.0, 2.0, 1.5], (BERT, "mine"): [1.0, 0.75], ("mine",): [None]}
    for names, ratios in expected.items():
        rows = encoding_speed.time_batches(dict.fromkeys(names), [], options)
        assert [row.get("times_bert") for row in rows] == ratios


@pytest.mark.slow
def test_the_tables_and_their_files(tmp_path, capsys):
    options = "--sentences 3 --ranges 0 1 --batch_sizes 1 3 --lengths 16 32 --profile".split()
    encoding_speed.main([*TINY, *options, "--output_dir", str(tmp_path / "out")])
    out, text = capsys.readouterr().out, (tmp_path / "out" / "encoding_speed.md").read_text()
    assert text.strip() in out and "aten::" in out
    assert "| seconds (least to most), batches of 1 | 2-49 | 50-99 |" in text and "x BERT" in text
    assert "| one sentence, by its tokens | 16 | 32 |" in text and "| chain tree | " in text
    results = json.loads((tmp_path / "out" / "encoding_speed.json").read_text())
    rows = results["batches"]
    assert [row["system"] for row in rows] == list(ON_A_CPU) * 4
    assert {(row["batches"], row["range"]) for row in rows} == {
        (f"batches of {size}", f"{low}-{high - 1}") for size in (1, 3) for low, high in RANGES[:2]
    }
    assert all(0 < row["least"] <= row["seconds"] <= row["most"] for row in rows)
    assert [(row["shape"], row["tokens"]) for row in results["lengths"]] == [
        (shape, tokens) for tokens in (16, 32) for shape in encoding_speed.SHAPES
    ]


def test_chosen_systems_on_batches_by_tokens(capsys):
    options = "--sentences 4 --ranges 0 --batch_tokens 64 --lengths --systems".split()
    encoding_speed.main([*TINY, *options, BERT, "Fast-R2D2*"])
    lines = capsys.readouterr().out.strip().splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == [
        "| seconds (least to most), 64 tokens per batch", "| ---", f"| {BERT}", "| Fast-R2D2*",
    ]  # fmt: skip
