"""The model of a run, new or trained further, and the tokenizer that must fit it."""

import copy
import sys
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import torch
from transformers import AutoConfig, PreTrainedTokenizerBase

from modeling_fast_r2d2 import FastR2D2Config, FastR2D2ForPreTraining
from modeling_fast_r2d2.checkpoints import find_checkpoint, load_model, load_tokenizer
from pretraining.options import SIZES, DataOptions, ModelOptions
from tokenization_fast_r2d2 import task_token_ids, train_tokenizer


def make_tokenizer(sentences: Iterable[str], data: DataOptions, model: ModelOptions) -> PreTrainedTokenizerBase:
    """The given tokenizer, the given model's, or a new one, trained on the sentences."""
    if data.tokenizer or model.model:
        return _load(load_tokenizer, data.tokenizer or model.model, "tokenizer")
    return train_tokenizer(
        sentences, data.vocab_size, data.tokenizer_kind, show_progress=sys.stderr.isatty(), word_rule=data.word_rule
    )


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
        config = make_config(tokenizer, options)
        check_fit(tokenizer, config)
        model = FastR2D2ForPreTraining(config)
    if {model.config.lm_loss_weight, model.config.tree_loss_weight} != {1.0}:
        raise ValueError("pretraining uses both losses with weight 1; lm_loss_weight and tree_loss_weight are for "
                         "fine-tuning")  # fmt: skip
    if gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()


def load_given_model(options: ModelOptions) -> FastR2D2ForPreTraining:
    """The given model. Its configuration may be overridden where that does not change its weights."""
    given = _load(AutoConfig.from_pretrained, options.model, "model")
    if not isinstance(given, FastR2D2Config):
        raise ValueError(f"{options.model!r} is not a Fast-R2D2 model but a {given.model_type!r} model")
    config = override(given, options.config_overrides)
    if weights_of(config) != weights_of(given):
        raise ValueError(
            f"--config_overrides {options.config_overrides!r} wants other weights than those in {options.model!r}; "
            "such fields can change only in a new model"
        )
    return _load(partial(load_model, FastR2D2ForPreTraining, may_miss=True, config=config), options.model, "model")


def weights_of(config: FastR2D2Config) -> dict[str, torch.Size]:
    """Names and shapes of a model's weights, without making them."""
    with torch.device("meta"):
        return {name: value.shape for name, value in FastR2D2ForPreTraining(config).state_dict().items()}


def make_config(tokenizer: PreTrainedTokenizerBase, options: ModelOptions) -> FastR2D2Config:
    """The configuration of a new model: its size, the tokenizer's ids, and the overrides."""
    config = FastR2D2Config(vocab_size=len(tokenizer), **SIZES[options.size], **task_token_ids(tokenizer))
    return override(config, options.config_overrides)


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
