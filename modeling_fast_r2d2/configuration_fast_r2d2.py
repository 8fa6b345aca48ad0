"""Configuration of Fast-R2D2 models."""

import math
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedConfig
from transformers.activations import ACT2FN

from .processor_code import describe_to_sentence_transformers, save_processor_code

ENCODINGS = ("forced", "chart", "heuristic")
MINIMUM_RISK = "minimum_risk"  # another tree of a chart; the base model alone takes it
PUNCTUATION = ("keep", "aside")

# The fields by the values that they may have.
SIZES = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "window_size",
    "parser_embedding_size", "parser_hidden_size", "parser_num_layers", "parser_num_attention_heads",
    "num_tree_samples",
)  # fmt: skip
NOT_NEGATIVE = (
    "initializer_range", "split_noise", "choice_noise", "bounds_bonus", "names_bonus", "confidence_scale",
    "forced_loss_weight", "chart_loss_weight", "lm_loss_weight", "tree_loss_weight",
)  # fmt: skip
LARGEST_RANGE = 1_000_000  # of token embeddings; the scores of much larger ones overflow
ANY_NUMBERS = "confidence_bias", "confidence_pair", "confidence_length"
PROBABILITIES = (
    "hidden_dropout_prob", "attention_probs_dropout_prob", "parser_dropout_prob", "classifier_dropout",
)  # fmt: skip
SWITCHES = (
    "normalize_split_scores", "nested_spans", "confidence_words", "pooler", "tie_decoder", "tie_word_embeddings",
)  # fmt: skip
CHOICES: dict[str, tuple[str | None, ...]] = {
    "encoding": ENCODINGS,
    "parser_type": ("lstm", "transformer"),
    "punctuation": PUNCTUATION,
    "tree_objective": ("exact", "sampled"),
    "hidden_act": tuple(ACT2FN),
    "composition_kernels": ("auto", "torch", "triton"),
    "problem_type": (None, "regression", "single_label_classification", "multi_label_classification"),
}

# What else fields may be, and how messages say it.
VALUES: dict[tuple[str, ...], tuple[Callable[[Any], bool], str]] = {
    SIZES: (lambda value: _is_whole(value, 1), "a whole number >= 1"),
    NOT_NEGATIVE: (lambda value: is_number(value) and value >= 0, ">= 0 and finite"),
    PROBABILITIES: (lambda value: is_number(value) and 0 <= value < 1, ">= 0 and < 1"),
    ANY_NUMBERS: (lambda value: is_number(value), "a finite number"),
    ("layer_norm_eps",): (lambda value: is_number(value) and value > 0, "> 0 and finite"),
    SWITCHES: (lambda value: isinstance(value, bool), "True or False"),
}

REMOVED = "cuda_graphs", "constrain_chart"

# Preset for all classes, since `save_pretrained` records only the class that was saved.
AUTO_MAP = {
    "AutoConfig": "configuration_fast_r2d2.FastR2D2Config",
    "AutoProcessor": "processing_fast_r2d2.FastR2D2Processor",
    "AutoModel": "modeling_fast_r2d2.FastR2D2Model",
    "AutoModelForPreTraining": "modeling_fast_r2d2.FastR2D2ForPreTraining",
    "AutoModelForSequenceClassification": "modeling_fast_r2d2.FastR2D2ForSequenceClassification",
    # transformers has no auto class for parsers; the name is for `get_class_from_dynamic_module`.
    "AutoModelForConstituencyParsing": "modeling_fast_r2d2.FastR2D2ForConstituencyParsing",
}


class FastR2D2Config(PreTrainedConfig):
    """Everything that defines a Fast-R2D2 model; the defaults are the paper's base size (Section 4.1).

    Args:
        vocab_size: Number of word pieces, shared by encoder and parser.
        hidden_size, num_hidden_layers, num_attention_heads, intermediate_size, hidden_act, layer_norm_eps: The
            composition stack, a post-norm Transformer whose layer norms have no affine parameters.
        pooler: Whether sentence and constituent vectors are a linear map of the nodes' vectors, so that cosines compare
            what is said; otherwise they are the nodes' vectors. Older models have none.
        hidden_dropout_prob, attention_probs_dropout_prob: Dropout in the composition stack and the task heads.
        initializer_range: Standard deviation of the encoder's token embeddings in a new model; other weights begin as
            in PyTorch.
        tie_word_embeddings: Whether the language model's output matrix is that of the token embeddings.
        window_size: The paper's ``m``: the largest number of candidates of a chart cell.
        encoding: How `FastR2D2Model` encodes: ``"forced"`` (along the parser's tree, "Fast-R2D2*" in the paper),
            ``"chart"`` (over the chart that the parser pruned, "Fast-R2D2") or ``"heuristic"`` (the predecessor R2D2).
        parser_type: Backbone of the parser, ``"lstm"`` or ``"transformer"``.
        parser_embedding_size, parser_hidden_size, parser_num_layers: The parser; each LSTM direction has
            ``parser_hidden_size`` units, the Transformer ``2 * parser_hidden_size`` features.
        parser_num_attention_heads, parser_dropout_prob: The parser's heads (Transformer only) and dropout.
        normalize_split_scores: Standardise the scores over each sentence, as the paper's equation for ``v`` has it
            and the authors' code does not.
        split_noise, choice_noise: Scale of the Gumbel noise on split scores and on the choice among a cell's
            candidates while training; 1 is the paper's, 0 switches it off.
        nested_spans: Honour nested span constraints level by level instead of through their union only.
        punctuation: What parsing does with punctuation between words. ``"keep"`` shows it to the model. ``"aside"``,
            for models trained without punctuation, takes it out and puts it back into the trees.
        bounds_bonus: With ``"aside"``: nats added to the split scores where punctuation other than quotes stood, but
            for commas in a list and before a word alone.
        names_bonus: Nats taken from the split scores between two words that both begin with a capital letter, and
            within such words, so that names stay together. For languages that write names so.
        confidence_scale, confidence_bias: What the log-odds of the parser's constituents are multiplied by, and what is
            added, so that its confidences are how often it is right; 1 and 0 for a parser that was not calibrated.
        confidence_pair, confidence_length: What is added for constituents of two words, and for each nat of
            ``log(words)``; 0 for a parser that was not calibrated.
        confidence_words: Whether the parser has weights that tell what the words in and beside a constituent add.
        tie_decoder: Let the composition stack itself predict tokens and compare pairs; otherwise a second stack does.
        tree_objective: ``"exact"`` tree KL or ``"sampled"`` with ``num_tree_samples`` trees (the paper's method).
        forced_loss_weight, chart_loss_weight, lm_loss_weight, tree_loss_weight: Weights of the four losses of
            fine-tuning (task loss on the forced root, task loss on the chart's root, language model, tree KL).
            Pretraining has the last two. A loss of weight 0 is not computed.
        composition_kernels: ``"torch"``; ``"triton"``, the fused kernels of `fast_r2d2_kernels`; or ``"auto"``,
            the fused kernels on a GPU where they can run, else torch. float64 and activations other than GELU always
            take torch's operations.
        classifier_dropout: Dropout of the task heads; None takes ``hidden_dropout_prob``.
        pad_token_id, unk_token_id, bos_token_id, eos_token_id: The usual ones; a text without a token is one
            ``unk_token_id``, and the last two stand for the context beyond a sentence's ends.
        cls_token_id, sum_token_id, mask_token_id, pair_token_id: Task tokens of the composition stack: score, blend,
            language model, sentence pair.

    Raises:
        ValueError: naming the field, for sizes that are no whole numbers from 1 on, heads that do not divide their
            size, numbers that are negative or not finite, probabilities that are not below 1, token ids outside the
            vocabulary, switches other than True and False, unknown names, and attention kernels.
    """

    model_type = "fast_r2d2"
    # Trainer would join these over batches, which their shapes do not allow.
    keys_to_ignore_at_inference = [
        "forced_loss",
        "chart_loss",
        "lm_loss",
        "tree_loss",
        "last_hidden_state",
        "pooler_output",
        "log_prob",
        "hidden_states",
    ]

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 4
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    pooler: bool = False
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    layer_norm_eps: float = 1e-5
    initializer_range: float = 0.02
    window_size: int = 4
    encoding: str = "forced"
    parser_type: str = "lstm"
    parser_embedding_size: int = 128
    parser_hidden_size: int = 256
    parser_num_layers: int = 4
    parser_num_attention_heads: int = 8
    parser_dropout_prob: float = 0.1
    normalize_split_scores: bool = False
    split_noise: float = 1.0
    choice_noise: float = 1.0
    nested_spans: bool = False
    punctuation: str = "keep"
    bounds_bonus: float = 0.0
    names_bonus: float = 0.0
    confidence_scale: float = 1.0
    confidence_bias: float = 0.0
    confidence_pair: float = 0.0
    confidence_length: float = 0.0
    confidence_words: bool = False
    tie_decoder: bool = True
    tree_objective: str = "exact"
    num_tree_samples: int = 256
    forced_loss_weight: float = 1.0
    chart_loss_weight: float = 1.0
    lm_loss_weight: float = 1.0
    tree_loss_weight: float = 1.0
    composition_kernels: str = "auto"
    classifier_dropout: float | None = None
    tie_word_embeddings: bool = True
    pad_token_id: int | None = 0
    unk_token_id: int = 1
    bos_token_id: int | None = 4
    eos_token_id: int | None = 5
    cls_token_id: int = 2
    sum_token_id: int = 6
    mask_token_id: int = 3
    pair_token_id: int = 7

    def __post_init__(self, **kwargs: Any) -> None:
        for name in REMOVED:
            if kwargs.pop(name, False):  # older folders have it, nearly all of them as false
                warnings.warn(f"{name} is ignored: there is no such option any more", stacklevel=2)
        _check_attention(kwargs)
        self._check_labels(kwargs.get("num_labels"))
        self.check()
        kwargs["auto_map"] = AUTO_MAP | (kwargs.get("auto_map") or {})  # older folders have fewer
        super().__post_init__(**kwargs)

    def _check_labels(self, num_labels: Any) -> None:
        """Check what the base class reads before anything else."""
        if num_labels is not None and not _is_whole(num_labels, 1):
            raise ValueError(f"num_labels must be a whole number >= 1, got {num_labels!r}")
        names = self.id2label
        is_good = isinstance(names, dict) and names and all(str(key).isdecimal() for key in names)
        if names is not None and not is_good:
            raise ValueError(f"id2label must be a dict with the numbers of the labels as keys, got {names!r:.80}")
        if self.dtype is not None and not isinstance(getattr(torch, str(self.dtype), self.dtype), torch.dtype):
            raise ValueError(f"dtype must be a torch dtype or the name of one, such as float32, got {self.dtype!r}")

    def save_pretrained(self, save_directory: str | os.PathLike, push_to_hub: bool = False, **kwargs: Any) -> None:
        """As in transformers, with the processor's code, as uploads send only what a configuration writes beside it. If
        the folder is for a model with an encoder, sentence-transformers can read it, too."""
        save_processor_code(Path(save_directory), self)
        if "FastR2D2ForConstituencyParsing" not in (self.architectures or []):
            describe_to_sentence_transformers(Path(save_directory))
        super().save_pretrained(save_directory, push_to_hub, **kwargs)

    def check(self) -> None:
        """Raise ValueError, naming it, for a field of a wrong value. Every model calls this when it is made."""
        for names, (is_good, what) in VALUES.items():
            for name in names:
                value = getattr(self, name)
                is_missing = name == "classifier_dropout" and value is None
                if not is_missing and not is_good(value):
                    raise ValueError(f"{name} must be {what}, got {value!r}")
        if self.initializer_range > LARGEST_RANGE:
            raise ValueError(f"initializer_range must be <= {LARGEST_RANGE:,}, got {self.initializer_range!r}")
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                listed = ", ".join(map(str, known))
                raise ValueError(f"{name} must be one of {listed}, got {getattr(self, name)!r}")
        _check_divides("num_attention_heads", self.num_attention_heads, "hidden_size", self.hidden_size)
        if self.parser_type == "transformer":
            size = 2 * self.parser_hidden_size
            _check_divides(
                "parser_num_attention_heads", self.parser_num_attention_heads, "2 * parser_hidden_size", size
            )
        self.check_token_ids(self.vocab_size)

    def check_token_ids(self, vocab_size: int) -> None:
        """Raise a ValueError if the special tokens do not lie in a vocabulary of this size."""
        for name in ("pad", "unk", "bos", "eos", "cls", "sum", "mask", "pair"):
            token_id = getattr(self, f"{name}_token_id")
            if not _is_whole(token_id, 0) or token_id >= vocab_size:
                raise ValueError(
                    f"{name}_token_id must be in 0 ... {vocab_size - 1}, got {token_id!r}; take the "
                    "ids from the tokenizer and count its special tokens in vocab_size"
                )


def check_punctuation(punctuation: str, bounds_bonus: float) -> None:
    """Raise ValueError for an unknown ``punctuation`` and for a bonus that is negative or not finite."""
    if punctuation not in PUNCTUATION:
        raise ValueError(f"punctuation must be {' or '.join(PUNCTUATION)}, got {punctuation!r}")
    if not (is_number(bounds_bonus) and bounds_bonus >= 0):
        raise ValueError(f"bounds_bonus must be >= 0 and finite, got {bounds_bonus!r}")


def is_number(value: object) -> bool:
    """Whether this is a finite number. True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check_attention(fields: dict[str, Any]) -> None:
    """Refuse the name of a kernel: transformers would fetch its code from the Hub, and this model never runs it."""
    for name in ("attn_implementation", "_attn_implementation"):
        if fields.get(name) not in (None, "eager", "sdpa"):
            raise ValueError(f"{name} must be eager or sdpa, or left out, got {fields[name]!r:.80}")


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _check_divides(name: str, parts: int, whole_name: str, whole: int) -> None:
    if whole % parts:
        raise ValueError(f"{whole_name} must be a multiple of {name}, got {whole} and {parts}")


__all__ = ["FastR2D2Config", "check_punctuation", "is_number"]
