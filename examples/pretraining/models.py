"""The model of a run, new or trained further, perhaps made wider; and the tokenizer that must fit it.

Each vector of a wider model is the old one, with new features behind it. At first, old weights are as they were, and
old features depend on old ones alone; new features depend on both. What the model computes changes a little, because
layer norms are over old and new features together; training mends that.
"""

import copy
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from datasets import Dataset, IterableDataset
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoConfig, PreTrainedTokenizerBase

from modeling_fast_r2d2 import FastR2D2Config, FastR2D2ForPreTraining
from modeling_fast_r2d2.checkpoints import find_checkpoint, load_model, load_tokenizer
from modeling_fast_r2d2.checkpoints.folders import HEADS
from pretraining.corpus import sentences_of_texts
from pretraining.counts import CountVectors
from pretraining.options import SIZES, DataOptions, ModelOptions, Options
from tokenization_fast_r2d2 import find_abbreviations, find_coordinators, task_token_ids, train_tokenizer

WIDER = ("hidden_size", "intermediate_size")  # the fields that may become larger
NOISE = 0.02  # standard deviation of new weights of composition layers
SHARE_OF_OLD = 0.1  # by which the pooler multiplies old features, so that cosines hardly depend on them

# What lies along the axes of weights; where a name is not here, the last axis is "hidden" and others stay.
AXES = {
    "query_key_value": ("projections", "hidden"),
    "attention_output": ("hidden", "heads"),
    "intermediate": ("inner", "hidden"),
    "output": ("hidden", "inner"),
    "transform": ("hidden", "hidden"),
}


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
    """A `FastR2D2ForPreTraining` in training mode. Raises ValueError for fields in ``config_overrides`` that are
    unknown or make a given model anything but wider, and if the tokenizer does not fit the model."""
    if options.model:
        model = load_given_model(options)
    else:
        model = FastR2D2ForPreTraining(final_config(options, tokenizer))
        if model.config.pooler:
            begin_pooler(model, 0)
    check_fit(tokenizer, model.config)
    if gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()


def load_given_model(options: ModelOptions) -> FastR2D2ForPreTraining:
    """The given model. Its configuration may be overridden where its weights stay or grow."""
    config, narrow = final_config(options), narrow_config(options)
    model = _load(partial(load_model, FastR2D2ForPreTraining, may_miss=HEADS, config=narrow), options.model, "model")
    return model if weights_of(narrow) == weights_of(config) else widen(model, config)


def narrow_config(options: ModelOptions) -> FastR2D2Config:
    """The final configuration in the sizes of the given model, whose weights it has. Raises ValueError for overrides
    that want others."""
    given, config = given_config(options), final_config(options)
    narrow = config
    sizes_fit = all(getattr(config, name) >= getattr(given, name) for name in WIDER)
    if sizes_fit and config.num_attention_heads == given.num_attention_heads and not given.pooler:
        as_given = {name: getattr(given, name) for name in (*WIDER, "pooler")}
        narrow = FastR2D2Config.from_dict(config.to_dict() | as_given)
    if weights_of(narrow) != weights_of(given):
        raise ValueError(
            f"--config_overrides {options.config_overrides!r} wants other weights than those in {options.model!r}; "
            f"a given model may only grow, in {' and '.join(WIDER)} and by a pooler; others belong to a new model"
        )
    return narrow


@torch.no_grad()
def widen(old: FastR2D2ForPreTraining, config: FastR2D2Config) -> FastR2D2ForPreTraining:
    """The model with a configuration that is wider, in `WIDER` and by a pooler."""
    new, weights = FastR2D2ForPreTraining(config), old.state_dict()
    for name, weight in new.state_dict().items():
        if "parser." in name:
            weight.copy_(weights[name])
        elif name in weights and name != "lm_head.decoder.weight":  # which is the token embedding's
            _begin(name, weight, weights[name], old.config, config)
    if config.pooler:
        begin_pooler(new, old.config.hidden_size)
    return new


@torch.no_grad()
def begin_pooler(model: FastR2D2ForPreTraining, old_size: int) -> None:
    """The pooler gives the new features, then a share of the old ones, of which there are ``old_size``."""
    size = model.config.hidden_size
    moved = torch.eye(size).roll(-old_size, 0)
    moved[size - old_size :] *= SHARE_OF_OLD
    model.model.pooler.weight.copy_(moved)


def _begin(name: str, weight: Tensor, old: Tensor, old_config: FastR2D2Config, config: FastR2D2Config) -> None:
    module = name.split(".")[-2]
    axes = AXES.get(module, (None, "hidden"))[: weight.dim()] if weight.dim() == 2 or module in AXES else (None,)
    places = [_places(axis, size, old_config, config) for axis, size in zip(axes, old.shape, strict=True)]
    if module == "query_key_value":  # scores are divided by the root of the head's size, which is larger now
        scale = torch.ones(len(old))
        scale[: len(old) // 3] = (config.hidden_size / old_config.hidden_size) ** 0.5
        old = old * (scale[:, None] if old.dim() == 2 else scale)
    weight.zero_()
    if module == "embeddings":
        weight.normal_(0, old.square().mean().sqrt().item())
    elif module in AXES and module != "transform" and weight.dim() == 2:
        weight.normal_(0, NOISE)
        weight[places[0]] = 0
        if module == "query_key_value":  # old attention weights stay: new queries begin with 0
            weight[: config.hidden_size] = 0
    weight[torch.meshgrid(*places, indexing="ij")] = old


def _places(axis: str | None, size: int, old: FastR2D2Config, new: FastR2D2Config) -> Tensor:
    """Where the old entries of an axis, of which there are ``size``, lie in the new one."""
    if axis not in ("heads", "projections"):
        return torch.arange(size)
    heads = new.num_attention_heads
    head, feature = torch.meshgrid(torch.arange(heads), torch.arange(old.hidden_size // heads), indexing="ij")
    place = (head * (new.hidden_size // heads) + feature).flatten()
    return torch.cat([place + part * new.hidden_size for part in range(size // old.hidden_size)])


def read_as_given_model(options: Options) -> Options:
    """The options with ``keep_punctuation`` as a given model was trained: one that never saw punctuation would read it
    otherwise, and its trees would be worse. Wrong overrides show here, before a corpus is read."""
    config = narrow_config(options.model) if options.model.model else final_config(options.model)
    keep = config.punctuation == "keep" and options.data.keep_punctuation
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
    """Make a new model predict tokens by their frequency, which it would take hundreds of steps to learn, from how
    often each occurs in the corpus: ``(vocab_size,)`` int64."""
    share = (counts + 1) / (counts + 1).sum()
    with torch.no_grad():
        model.lm_head.decoder.bias.copy_(torch.from_numpy(np.log(share)))


def final_config(options: ModelOptions, tokenizer: PreTrainedTokenizerBase | None = None) -> FastR2D2Config:
    """The configuration of the model that `make_model` makes. Without a new model's tokenizer, vocabulary and task
    tokens are `FastR2D2Config`'s. Raises ValueError for a given model of another kind and for wrong overrides."""
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
    """Features of count vectors: all of a new model's, or those by which a given model is made wider. Raises ValueError
    if a given model stays as wide as it is, or if there is no pooler to tell new features from old."""
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
