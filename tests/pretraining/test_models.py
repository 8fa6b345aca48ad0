"""The model and the tokenizer that a run begins with."""

import torch

from modeling_fast_r2d2 import FastR2D2Model, bundled_checkpoint
from pretraining.models import make_model, make_tokenizer
from pretraining.options import DataOptions, ModelOptions


def test_a_bundled_model_goes_by_its_name():
    options = ModelOptions(model="fast-r2d2-tiny")
    tokenizer = make_tokenizer([], DataOptions(corpus=[]), options)
    model, bundled = make_model(tokenizer, options), FastR2D2Model.from_pretrained(bundled_checkpoint())
    assert model.training and len(tokenizer) == bundled.config.vocab_size
    assert torch.equal(model.model.embeddings.weight, bundled.embeddings.weight)
