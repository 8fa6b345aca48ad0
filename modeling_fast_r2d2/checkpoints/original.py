"""Convert weights of the authors' code (alipay/StructuredLM_RTDT) to a checkpoint folder of this package.

    fast-r2d2 convert weights --config config.json --weights model.bin --output folder

The encoder and the parser may be in one file or in two (``--weights encoder.bin parser.bin``).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers.utils import logging

from ..configuration_fast_r2d2 import FastR2D2Config
from ..modeling_fast_r2d2 import FastR2D2ForPreTraining, FastR2D2ForSequenceClassification
from ..text_files import check_is_file, read_record
from .folders import NO_TENSORS

logger = logging.get_logger(__name__)

CONFIG_NAMES = {
    "encoder_num_hidden_layers": "num_hidden_layers",
    "parser_input_dim": "parser_embedding_size",
    "parser_hidden_dim": "parser_hidden_size",
    "pairwise_task_id": "pair_token_id",
}
SAME_CONFIG_NAMES = (
    "vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "window_size", "parser_num_layers",
    "tie_decoder", "attention_probs_dropout_prob", "hidden_dropout_prob", "pad_token_id", "unk_token_id",
    "bos_token_id", "eos_token_id", "sum_token_id", "cls_token_id", "mask_token_id",
)  # fmt: skip

LAYER_NAMES = {
    "self_attn.in_proj_weight": "query_key_value.weight",
    "self_attn.in_proj_bias": "query_key_value.bias",
    "self_attn.out_proj.weight": "attention_output.weight",
    "self_attn.out_proj.bias": "attention_output.bias",
    "linear1.weight": "intermediate.weight",
    "linear1.bias": "intermediate.bias",
    "linear2.weight": "output.weight",
    "linear2.bias": "output.bias",
    "position_embedding.weight": "role_embeddings.weight",
}
PREFIXES = {
    "r2d2.embedding.": "model.embeddings.",
    "r2d2.blender.": "model.composition.blend.",
    "r2d2.score_linear.": "model.composition.score.",
    "r2d2.cls_dense.0.": "lm_head.transform.",
    "r2d2.classifier.": "lm_head.decoder.",
    "parser.embedding.": "model.parser.embeddings.",
    "parser.encoder.": "model.parser.backbone.lstm.",
    "parser.score_mlp.0.": "model.parser.dense.",
    "parser.score_mlp.3.": "model.parser.score.",
    "classifier.0.": "classifier.dense.",
    "classifier.3.": "classifier.out_proj.",
}
STACKS = {"tree_encoder": "model.composition.stack", "tree_decoder": "decoder_stack"}


def convert_config(original: Mapping[str, Any]) -> FastR2D2Config:
    """Convert the original's config to ours.

    Args:
        original: the original's ``config.json`` as a dict. Fields that have no equivalent here are ignored.

    Raises:
        ValueError: if ``embedding_dim`` differs from ``hidden_size``: our models have one size for both.
    """
    size = original.get("hidden_size")
    if original.get("embedding_dim", size) != size:
        raise ValueError(f"embedding_dim must equal hidden_size, got {original['embedding_dim']} and {size}")
    ours = {name: original[name] for name in SAME_CONFIG_NAMES if name in original}
    ours |= {name: original[theirs] for theirs, name in CONFIG_NAMES.items() if theirs in original}
    if original.get("cls_token_id") == 101:  # BERT's vocabulary, whose [UNK] the authors' files do not name
        ours.setdefault("unk_token_id", 100)
    return FastR2D2Config(**ours)


def convert_state_dict(state_dict: Mapping[str, Tensor], config: FastR2D2Config) -> dict[str, Tensor]:
    """Rename the original's weights.

    Args:
        state_dict: weights whose names have the prefixes ``r2d2.``, ``parser.`` and ``classifier.``, or weights without
            prefixes from the file of an encoder or a parser. Unknown names are left out; a
            warning gives their number and the first of them.
        config: our config, as from `convert_config`. If it has ``tie_decoder``, the decoder's stack is left out.

    Returns:
        Weights under the names of our models with heads, for ``from_pretrained(None, state_dict=...)``.

    Raises:
        ValueError: if no name comes from the original code.
    """
    converted: dict[str, Tensor] = {}
    unknown = []
    for name, tensor in _with_prefixes(state_dict).items():
        ours = _convert_name(name)
        if ours is None:
            unknown.append(name)
        elif ours.startswith("decoder_stack.") and config.tie_decoder:
            continue  # it repeats the encoder's stack
        else:
            # The original has more than three roles, but its code never reads the others.
            converted[ours] = tensor[:3].clone() if "role_embeddings" in ours else tensor
    if not converted:
        raise ValueError(
            f"no weights of the original Fast-R2D2 code found; names begin with {', '.join(sorted(state_dict)[:3])}"
        )
    if unknown:
        logger.warning(f"left out {len(unknown)} weights that have no place here: {', '.join(unknown[:5])}")
    return converted


def _with_prefixes(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    named = {name.removeprefix("module."): tensor for name, tensor in state_dict.items()}
    if any(name.startswith(("r2d2.", "parser.")) for name in named):
        return named
    prefix = "parser." if any(name.startswith("score_mlp.") for name in named) else "r2d2."
    return {prefix + name: tensor for name, tensor in named.items()}


def _convert_name(name: str) -> str | None:
    layer = re.fullmatch(r"r2d2\.(tree_encoder|tree_decoder)\.(layers\.\d+)\.(.+)", name)
    if layer:
        stack, number, rest = layer.groups()
        return f"{STACKS[stack]}.{number}.{LAYER_NAMES[rest]}" if rest in LAYER_NAMES else None
    for theirs, ours in PREFIXES.items():
        if name.startswith(theirs):
            return ours + name.removeprefix(theirs)
    return None


def load_weights(paths: list[Path]) -> dict[str, Tensor]:
    """Read weights from several files into one dict, in which all names have prefixes.

    Args:
        paths: ``.safetensors`` files, or pickles that hold nothing but tensors (``weights_only=True``).

    Raises:
        ValueError: if a file is damaged, holds something else, or is a pipe or a device. The message names the file.
    """
    weights: dict[str, Tensor] = {}
    for path in paths:
        weights |= _with_prefixes(_load_file(path))
    return weights


def _load_file(path: Path) -> dict[str, Tensor]:
    check_is_file(path)
    try:
        if path.suffix == ".safetensors":
            loaded = load_file(path)
        else:
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged ({error})") from error
    except (*NO_TENSORS, RuntimeError) as error:  # their advice is to run what is in the file
        raise ValueError(f"{path} is damaged, or it holds more than a dict of tensors") from error
    if not (isinstance(loaded, Mapping) and all(map(_is_weight, loaded.keys(), loaded.values()))):
        raise ValueError(f"{path} holds no dict of weights by name")
    return dict(loaded)


def _is_weight(name: Any, value: Any) -> bool:
    return isinstance(name, str) and isinstance(value, Tensor) and value.dim() > 0


def convert_files(config_file: Path, weight_files: list[Path], output: Path) -> None:
    """Convert, and write a checkpoint folder: a classifier if the weights have one, else a model for pretraining.

    Args:
        config_file: the original's ``config.json``.
        weight_files: as for `load_weights`.
        output: the folder.

    Raises:
        ValueError: if a file is damaged, or if the files lack weights of the model, have them in other shapes, or have
            more, such as a layer that the configuration does not know.
    """
    config = convert_config(read_record(config_file))
    weights = convert_state_dict(load_weights(weight_files), config)
    is_classifier = "classifier.out_proj.weight" in weights
    if is_classifier:
        config.num_labels = len(weights["classifier.out_proj.weight"])
    model_class = FastR2D2ForSequenceClassification if is_classifier else FastR2D2ForPreTraining
    try:
        loaded: Any = model_class.from_pretrained(None, config=config, state_dict=weights, output_loading_info=True)
    except RuntimeError as error:
        raise ValueError(f"the weights do not have the shapes that {config_file} asks for") from error
    model, info = loaded  # a pair, since loading info was asked for; the library's annotation knows only the model
    if info["unexpected_keys"]:
        left_over = ", ".join(sorted(info["unexpected_keys"])[:3])
        raise ValueError(f"{config_file} has no place for {len(info['unexpected_keys'])} weights, such as {left_over}")
    if info["missing_keys"]:
        missing = ", ".join(sorted(info["missing_keys"])[:3])
        raise ValueError(
            f"{len(info['missing_keys'])} weights are missing, such as {missing}; give all --weights files"
        )
    model.save_pretrained(output)
    print(f"wrote {model_class.__name__} with {model.num_parameters():,} parameters to {output}, without a tokenizer")
