"""A model made wider: it knows what it knew, and has room for more.

Each vector of the wider model is the old one, with new features behind it. At first, old weights are as they were, and
old features depend on old ones alone; new features depend on both. What the model computes changes a little, because
layer norms are over old and new features together; training mends that.
"""

import torch
from torch import Tensor

from modeling_fast_r2d2 import FastR2D2Config, FastR2D2ForPreTraining

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


def is_wider(old: FastR2D2Config, new: FastR2D2Config) -> bool:
    """Whether `widen` may make a model of the old configuration one of the new."""
    sizes_fit = all(getattr(new, name) >= getattr(old, name) for name in WIDER)
    return sizes_fit and new.num_attention_heads == old.num_attention_heads and not old.pooler


def as_narrow_as(old: FastR2D2Config, new: FastR2D2Config) -> FastR2D2Config:
    """The new configuration with the old one's values of what `widen` changes."""
    return FastR2D2Config.from_dict(new.to_dict() | {name: getattr(old, name) for name in (*WIDER, "pooler")})


@torch.no_grad()
def widen(old: FastR2D2ForPreTraining, config: FastR2D2Config) -> FastR2D2ForPreTraining:
    """A model of a configuration that `is_wider`."""
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
