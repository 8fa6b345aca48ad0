"""Classifiers under a stock `Trainer`, with stock collators and what tokenizers return."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from torch.nn.utils import parameters_to_vector
from transformers import DataCollatorWithPadding, Trainer, TrainingArguments, set_seed
from without_chance import WITHOUT_CHANCE

from modeling_fast_r2d2 import (
    FastR2D2ForConstituencyParsing,
    FastR2D2ForPairClassification,
    FastR2D2ForSequenceClassification,
    bundled_checkpoint,
)
from modeling_fast_r2d2.loss_parts import LossParts

TEXTS = [
    "a fine film", "a dull film with a bad plot and a worse end", "great", "bad", "the plot was not bad at all",
    "it rained", "a warm and gripping story about two old friends", "cold", "so it ends", "nobody knows why they left",
]  # fmt: skip


@pytest.fixture
def rows(tokenizer) -> Dataset:
    return Dataset.from_dict({**tokenizer(TEXTS), "label": [n % 2 for n in range(len(TEXTS))]})


def model_of(model_class=FastR2D2ForSequenceClassification, **config):
    set_seed(0)
    return model_class.from_pretrained(bundled_checkpoint(), num_labels=2, **config)


def trainer_of(model, rows, tokenizer, folder, optimizers=(None, None), callbacks=None, **arguments) -> Trainer:
    defaults = {"use_cpu": True, "disable_tqdm": True, "report_to": "none", "per_device_train_batch_size": 2,
                "num_train_epochs": 1, "save_strategy": "no", "learning_rate": 1e-3, "seed": 1}  # fmt: skip
    arguments = TrainingArguments(str(folder), **defaults | arguments)
    return Trainer(
        model, arguments, train_dataset=rows, eval_dataset=rows, processing_class=tokenizer, optimizers=optimizers,
        callbacks=callbacks, data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=lambda found: {"accuracy": (found.predictions.argmax(-1) == found.label_ids).mean()},
    )  # fmt: skip


# The language-model loss is a mean over tokens; of batches with different numbers of them the mean is another.
@pytest.mark.parametrize(
    ("lm_loss_weight", "chosen"), [(0.0, [0, 1, 2, 3]), pytest.param(1.0, [4, 4, 4, 4], marks=pytest.mark.slow)]
)
def test_accumulation_gives_the_gradient_of_one_big_batch(rows, tokenizer, tmp_path, lm_loss_weight, chosen):
    trained = []
    for size, accumulation in ((4, 1), (2, 2), (1, 4)):
        model = model_of(**WITHOUT_CHANCE, lm_loss_weight=lm_loss_weight)
        before = parameters_to_vector(model.parameters()).detach()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        trainer_of(
            model, rows.select(chosen), tokenizer, tmp_path, (optimizer, None), per_device_train_batch_size=size,
            gradient_accumulation_steps=accumulation, max_grad_norm=0.0,
        ).train()  # fmt: skip
        trained.append(parameters_to_vector(model.parameters()).detach() - before)
    for other in trained[1:]:
        torch.testing.assert_close(other, trained[0], atol=5e-6, rtol=1e-4)
    assert trained[0].abs().max() > 1e-2


@pytest.mark.parametrize("arguments", [
    {"bf16": True}, {"neftune_noise_alpha": 5.0},
    {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}},
    {"train_sampling_strategy": "group_by_length", "max_grad_norm": 0.1, "warmup_steps": 2},
], ids=lambda arguments: next(iter(arguments)))  # fmt: skip
@pytest.mark.parametrize("model_class", [
    FastR2D2ForSequenceClassification, pytest.param(FastR2D2ForPairClassification, marks=pytest.mark.slow),
])  # fmt: skip
def test_what_trainer_offers_trains(rows, tokenizer, tmp_path, arguments, model_class):
    if model_class is FastR2D2ForPairClassification:
        pairs = {**tokenizer(TEXTS, TEXTS[::-1]), "label": rows["label"]}
        rows = Dataset.from_dict(pairs)
    model = model_of(model_class)
    before = parameters_to_vector(model.parameters())
    trainer = trainer_of(model, rows, tokenizer, tmp_path, **arguments)
    result = trainer.train()
    assert np.isfinite(result.training_loss) and not torch.equal(before, parameters_to_vector(model.parameters()))
    assert np.isfinite(trainer.evaluate()["eval_loss"])


def test_predictions_of_ragged_batches_are_those_of_single_sentences(rows, tokenizer, tmp_path):
    model = model_of().eval()
    found = trainer_of(model, rows, tokenizer, tmp_path, per_device_eval_batch_size=3).predict(rows).predictions
    assert found.shape == (len(TEXTS), 2)
    with torch.no_grad():
        alone = [model(**tokenizer(text, return_tensors="pt")).logits[0] for text in TEXTS]
    np.testing.assert_allclose(found, torch.stack(alone), atol=1e-5)


def test_the_log_has_the_parts_of_the_loss_by_name(rows, tokenizer, tmp_path, capsys):
    weights = {"forced": 2.0, "chart": 0.5, "tree": 3.0}
    model = model_of(lm_loss_weight=0.0, **{f"{name}_loss_weight": weight for name, weight in weights.items()})
    trainer = trainer_of(
        model, rows, tokenizer, tmp_path, callbacks=[LossParts()], logging_steps=2, num_train_epochs=2,
        eval_strategy="epoch",
    )  # fmt: skip
    trainer.train()
    assert "'tree_loss': " in capsys.readouterr().out
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(logged) == 5
    for entry in logged:
        parts = {name.removesuffix("_loss"): value for name, value in entry.items() if name.endswith("_loss")}
        assert parts.keys() == weights.keys() and min(parts.values()) > 0
        assert sum(weights[name] * value for name, value in parts.items()) == pytest.approx(entry["loss"])
    assert not any("tree_loss" in entry for entry in trainer.state.log_history if "loss" not in entry)


@pytest.mark.slow
def test_the_best_checkpoint_is_loaded_at_the_end(rows, tokenizer, tmp_path, caplog):
    model = model_of()
    trainer = trainer_of(
        model, rows, tokenizer, tmp_path, num_train_epochs=3, eval_strategy="epoch", save_strategy="epoch",
        load_best_model_at_end=True, metric_for_best_model="loss", learning_rate=1e-1,
    )  # fmt: skip
    trainer.train()
    losses = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert trainer.evaluate()["eval_loss"] == pytest.approx(min(losses), rel=1e-5)
    assert "missing keys" not in caplog.text
    assert model.lm_head.decoder.weight is model.model.embeddings.weight


def test_predictions_of_a_parser_are_its_trees(tokenizer, tmp_path):
    parser = FastR2D2ForConstituencyParsing.from_pretrained(bundled_checkpoint())
    rows = Dataset.from_dict(dict(tokenizer(TEXTS)))
    found = trainer_of(parser, rows, tokenizer, tmp_path, per_device_eval_batch_size=3).predict(rows)
    scores, spans = found.predictions
    for row, text in enumerate(TEXTS):
        alone = parser(**tokenizer(text, return_tensors="pt"))
        splits = alone.spans.shape[1]
        assert spans[row, :splits].tolist() == alone.spans[0].tolist() and scores.shape == spans.shape[:2]


def test_pretraining_is_evaluated_without_labels(model, tokenizer, tmp_path):
    rows = Dataset.from_dict(dict(tokenizer(TEXTS[:2])))
    with torch.no_grad():
        expected = model(**tokenizer(TEXTS[:2], padding=True, return_tensors="pt")).loss.item()
    found = trainer_of(model, rows, tokenizer, tmp_path, prediction_loss_only=True).evaluate()
    assert found["eval_loss"] == pytest.approx(expected, rel=1e-5)


def test_labels_that_trainer_keeps_back_bring_a_warning(rows, tokenizer, tmp_path, caplog):
    trainer_of(model_of(), rows, tokenizer, tmp_path, label_smoothing_factor=0.1, max_steps=1).train()
    assert "training without labels: only the logits are computed" in caplog.text
