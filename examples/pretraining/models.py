"""The model of a run, new or trained further, and the tokenizer that must fit it."""

import copy
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from datasets import Dataset, IterableDataset
from torch.nn import functional as F
from transformers import AutoConfig, PreTrainedTokenizerBase

from modeling_fast_r2d2 import FastR2D2Config, FastR2D2ForPreTraining
from modeling_fast_r2d2.checkpoints import find_checkpoint, load_model, load_tokenizer
from modeling_fast_r2d2.checkpoints.folders import HEADS
from pretraining.corpus import sentences_of_texts
from pretraining.count_vectors import CountVectors
from pretraining.options import SIZES, DataOptions, ModelOptions, Options
from pretraining.widening import WIDER, as_narrow_as, begin_pooler, is_wider, widen
from tokenization_fast_r2d2 import find_abbreviations, find_coordinators, task_token_ids, train_tokenizer


def make_tokenizer(texts: Dataset | IterableDataset, data: DataOptions, model: ModelOptions) -> PreTrainedTokenizerBase:
    """The given tokenizer, the given model's, or a new one, which learns from the sentences of texts."""
    if data.tokenizer or model.model:
        return _load(load_tokenizer, data.tokenizer or model.model, "tokenizer")
    abbreviations = find_abbreviations(row["text"] or "" for row in texts)
    return train_tokenizer(
        sentences_of_texts(texts, data), int(data.vocab_size), data.tokenizer_kind,
        show_progress=sys.stderr.isatty(), word_rule=data.word_rule, abbreviations=abbreviations,
        coordinators=find_coordinators(sentences_of_texts(texts, data)),
    )  # fmt: skip


def make_model(tokenizer: PreTrainedTokenizerBase, options: ModelOptions, gradient_checkpointing: bool = False):
    """A `FastR2D2ForPreTraining` in training mode.

    Raises:
        ValueError: for fields in ``config_overrides`` that are unknown or change the weights of a given model, and if
            the tokenizer does not fit the model.
    """
    if options.model:
        model = load_given_model(options)
        check_fit(tokenizer, model.config)
    else:
        config = final_config(options, tokenizer)
        check_fit(tokenizer, config)
        model = FastR2D2ForPreTraining(config)
        if config.pooler:
            begin_pooler(model, 0)
    if gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()


def load_given_model(options: ModelOptions) -> FastR2D2ForPreTraining:
    """The given model. Its configuration may be overridden where its weights stay or grow."""
    given, config = given_config(options), final_config(options)
    narrow = as_narrow_as(given, config) if is_wider(given, config) else config
    if weights_of(narrow) != weights_of(given):
        raise ValueError(
            f"--config_overrides {options.config_overrides!r} wants other weights than those in {options.model!r}; "
            f"a given model may only grow, in {' and '.join(WIDER)} and by a pooler; others belong to a new model"
        )
    model = _load(partial(load_model, FastR2D2ForPreTraining, may_miss=HEADS, config=narrow), options.model, "model")
    return model if weights_of(narrow) == weights_of(config) else widen(model, config)


def read_as_given_model(options: Options) -> Options:
    """The options with ``keep_punctuation`` as a given model was trained: one that never saw punctuation would read it
    otherwise, and its trees would be worse. Wrong overrides show here, before a corpus is read."""
    keep = final_config(options.model).punctuation == "keep" and options.data.keep_punctuation
    return replace(options, data=replace(options.data, keep_punctuation=keep))


def given_config(options: ModelOptions) -> FastR2D2Config:
    """The configuration of the given model as it is."""
    given = _load(AutoConfig.from_pretrained, options.model, "model")
    if not isinstance(given, FastR2D2Config):
        raise ValueError(f"{options.model!r} is not a Fast-R2D2 model but a {given.model_type!r} model")
    return given


def weights_of(config: FastR2D2Config) -> dict[str, torch.Size]:
    """Names and shapes of a model's weights, without making them."""
    with torch.device("meta"):
        return {name: value.shape for name, value in FastR2D2ForPreTraining(config).state_dict().items()}


def override(config: FastR2D2Config, overrides: str | None) -> FastR2D2Config:
    if not overrides:
        return config
    try:
        config = copy.deepcopy(config)
        config.update_from_string(overrides)
        return FastR2D2Config.from_dict(config.to_dict())  # checks the fields together
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"--config_overrides {overrides!r}: {error}; give field=value,field=value with fields of "
                         "FastR2D2Config that have numbers, words or true and false") from error  # fmt: skip


def begin_with_frequencies(model: FastR2D2ForPreTraining, counts: np.ndarray) -> None:
    """Make a new model predict tokens by their frequency, which it would take hundreds of steps to learn.

    Args:
        counts: ``(vocab_size,)`` int64, how often each token occurs in the corpus.
    """
    share = (counts + 1) / (counts + 1).sum()
    with torch.no_grad():
        model.lm_head.decoder.bias.copy_(torch.from_numpy(np.log(share)))


def final_config(options: ModelOptions, tokenizer: PreTrainedTokenizerBase | None = None) -> FastR2D2Config:
    """The configuration of the model that `make_model` makes.

    Args:
        tokenizer: a new model's; without it, vocabulary and task tokens are `FastR2D2Config`'s.

    Raises:
        ValueError: for a given model of another kind and for wrong overrides.
    """
    if options.model:
        config = given_config(options)
    else:
        of_tokenizer = {"vocab_size": len(tokenizer), **task_token_ids(tokenizer)} if tokenizer is not None else {}
        config = FastR2D2Config(**SIZES[options.size], **of_tokenizer)
    config = override(config, options.config_overrides)
    if {config.lm_loss_weight, config.tree_loss_weight} != {1.0}:
        raise ValueError("pretraining uses both losses with weight 1; lm_loss_weight and tree_loss_weight are for "
                         "fine-tuning")  # fmt: skip
    return config


def size_of_count_vectors(options: ModelOptions, config: FastR2D2Config) -> int:
    """Features of count vectors: all of a new model's, or those by which a given model is made wider.

    Raises:
        ValueError: if a given model stays as wide as it is, or if there is no pooler to tell new features from old.
    """
    if not options.model:
        return config.hidden_size
    given = given_config(options).hidden_size
    if given == config.hidden_size or not config.pooler:
        raise ValueError("count vectors teach a new model, or a given one that is made wider and has a pooler, as with "
                         f"--config_overrides hidden_size={given + 256},pooler=true")  # fmt: skip
    return config.hidden_size - given


@torch.no_grad()
def begin_with_counts(model: FastR2D2ForPreTraining, vectors: CountVectors) -> None:
    """Let the last features of the token embeddings be count vectors, in the size of those that they replace."""
    new = model.model.embeddings.weight[:, -vectors.tokens.shape[1] :]
    new.copy_(F.layer_norm(vectors.tokens, vectors.tokens.shape[1:]) * new.square().mean().sqrt())


def check_fit(tokenizer: PreTrainedTokenizerBase, config: FastR2D2Config) -> None:
    """Raise ValueError if the model's vocabulary is too small for the tokenizer or task tokens have other ids."""
    if len(tokenizer) > config.vocab_size:
        raise ValueError(f"the tokenizer has {len(tokenizer)} pieces, the model room for {config.vocab_size}; "
                         "give the model's own as --tokenizer")  # fmt: skip
    for name, number in task_token_ids(tokenizer).items():
        if getattr(config, name) != number:
            raise ValueError(f"{name} is {number} in the tokenizer and {getattr(config, name)} in the model; "
                             "give the model's own as --tokenizer")  # fmt: skip


def _load(load: Callable, name: str, what: str):
    try:
        return load(find_checkpoint(name, is_model=what == "model"))
    except (OSError, ValueError) as error:
        raise ValueError(f"no {what} could be loaded from {name!r}: {error}") from error
