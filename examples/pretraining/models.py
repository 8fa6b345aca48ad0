"""The model of a run, new or trained on, and the tokenizer that must fit it."""

import copy
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import torch
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase

from modeling_fast_r2d2 import FastR2D2Config, FastR2D2ForPreTraining
from pretraining.options import SIZES, DataOptions, ModelOptions
from tokenization_fast_r2d2 import task_token_ids, train_tokenizer


def make_tokenizer(sentences: Iterable[str], data: DataOptions, model: ModelOptions) -> PreTrainedTokenizerBase:
    """The given tokenizer, that of the given model, or one that is learned from the sentences."""
    if data.tokenizer or model.model:
        return _load(AutoTokenizer.from_pretrained, data.tokenizer or model.model, "tokenizer")
    return train_tokenizer(sentences, data.vocab_size, data.tokenizer_kind)


def make_model(tokenizer: PreTrainedTokenizerBase, options: ModelOptions, gradient_checkpointing: bool = False):
    """A `FastR2D2ForPreTraining` in training mode.

    Raises:
        ValueError: for unknown fields in ``config_overrides``, such as change the weights of a given model, and if the
            tokenizer does not fit it.
    """
    if options.model:
        model = load_model(options)
        check_fit(tokenizer, model.config)
    else:
        config = make_config(tokenizer, options)
        check_fit(tokenizer, config)
        model = FastR2D2ForPreTraining(config)
    if {model.config.lm_loss_weight, model.config.tree_loss_weight} != {1.0}:
        raise ValueError("pretraining has both losses, each with weight 1; lm_loss_weight and tree_loss_weight are for "
                         "fine-tuning")  # fmt: skip
    if gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()


def load_model(options: ModelOptions) -> FastR2D2ForPreTraining:
    """The given model, with its configuration as it is or overridden where that changes no weights."""
    given = _load(AutoConfig.from_pretrained, options.model, "model")
    if not isinstance(given, FastR2D2Config):
        raise ValueError(f"{options.model!r} is no Fast-R2D2 model, but {given.model_type!r}")
    config = override(given, options.config_overrides)
    if weights_of(config) != weights_of(given):
        raise ValueError(
            f"--config_overrides {options.config_overrides!r} wants other weights than those in {options.model!r}; "
            "that is for new models"
        )
    return _load(partial(FastR2D2ForPreTraining.from_pretrained, config=config), options.model, "model")


def weights_of(config: FastR2D2Config) -> dict[str, torch.Size]:
    """Names and shapes of a model's weights, without making them."""
    with torch.device("meta"):
        return {name: value.shape for name, value in FastR2D2ForPreTraining(config).state_dict().items()}


def make_config(tokenizer: PreTrainedTokenizerBase, options: ModelOptions) -> FastR2D2Config:
    """Of a new model: its size, the tokenizer's ids, and what was said otherwise."""
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
    """Let a new model's language model predict by frequency, which it would need hundreds of steps to find out.

    Args:
        counts: ``(vocab_size,)``, how often each token occurs in the corpus.
    """
    share = (counts + 1) / (counts + 1).sum()
    with torch.no_grad():
        model.lm_head.decoder.bias.copy_(torch.from_numpy(np.log(share)))


def check_fit(tokenizer: PreTrainedTokenizerBase, config: FastR2D2Config) -> None:
    """Raise ValueError unless the tokenizer's ids are in the model's vocabulary and its task tokens are the model's."""
    if len(tokenizer) > config.vocab_size:
        raise ValueError(f"the tokenizer has {len(tokenizer)} pieces, the model room for {config.vocab_size}; "
                         "give the model's own as --tokenizer")  # fmt: skip
    for name, number in task_token_ids(tokenizer).items():
        if getattr(config, name) != number:
            raise ValueError(f"{name} is {number} in the tokenizer and {getattr(config, name)} in the model; "
                             "give the model's own as --tokenizer")  # fmt: skip


def _load(load: Callable, name: str, what: str):
    try:
        return load(name)
    except (OSError, ValueError, RuntimeError) as error:
        raise ValueError(f"no {what} could be loaded from {name!r}: {error}") from error
