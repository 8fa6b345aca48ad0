"""Training steps against a BERT's, on the same batches."""

import json

import pytest
import torch
import training
from training import BERT, ON_A_CPU, ON_A_GPU, Training

import measuring

TINY = "--size tiny --tokens 60 --rounds 1 --device cpu".split()


@pytest.mark.parametrize("way", ON_A_GPU)
def test_a_step_of_every_way_leaves_the_weights(way):
    batches = [measuring.pad([[5, 6, 7, 8], [9, 10, 11]], "cpu")]
    step = Training(way, "tiny", batches, "cpu", torch.float32)
    before = [weight.clone() for weight in step.model.parameters()]
    step()
    assert all(map(torch.equal, before, step.model.parameters()))
    moments = [state["exp_avg"].norm() for state in step.optimizer.state.values()]
    assert torch.stack(moments).isfinite().all() and torch.stack(moments).sum() > 0


@pytest.mark.slow
def test_the_table_and_its_files(tmp_path, capsys):
    training.main([*TINY, "--output_dir", str(tmp_path / "out")])
    out, text = capsys.readouterr().out, (tmp_path / "out" / "training.md").read_text()
    assert text.strip() in out and "| tiny: pretraining | " in text
    rows = json.loads((tmp_path / "out" / "training.json").read_text())["steps"]
    assert [row["way"] for row in rows] == list(ON_A_CPU) and rows[0]["times_bert"] == 1
    assert all(0 < row["share_of_rate"] and row["tokens"] <= 60 for row in rows)
    operations = {row["way"]: row["operations"] for row in rows}
    assert operations["pretraining, gradient checkpointing"] > operations["pretraining"]
    assert operations["fine-tuning, all losses"] > 2 * operations["fine-tuning along trees"] > operations[BERT] / 2
