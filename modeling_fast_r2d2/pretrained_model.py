"""What all Fast-R2D2 models share: how weights begin, load and are resized, and the parser's trees."""

import math
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init

from .chart import to_device
from .chart_planning import merge_ranks, tree_spans
from .configuration_fast_r2d2 import FastR2D2Config
from .inputs import Sentences, add_split_bonus, check_embeddings, check_ids, check_tree_labels, read_split_scores
from .outputs import FastR2D2ParserOutput
from .parser import TopDownParser, span_nesting, tree_label_loss


def left_to_python(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Keep torch's compiler out of a model's ``forward``, and say what to compile instead.

    Every batch has charts of its own, so the compiler would take minutes for each of the first batches.
    """
    run = torch.compiler.disable(forward)

    @wraps(forward)
    def run_or_warn(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            _say_what_to_compile()
        return run(*args, **kwargs)

    return run_or_warn


@torch.compiler.disable
def _say_what_to_compile() -> None:
    warnings.warn(
        "torch.compile leaves a Fast-R2D2 model as it is, since every batch has trees of its own; compile its "
        "encoder's composition alone: model.base_model.composition.compile(dynamic=True)",
        stacklevel=2,
    )


class FastR2D2PreTrainedModel(PreTrainedModel):
    """Initialisation, loading and the parser's share of resizing: what all models have."""

    config_class = FastR2D2Config
    base_model_prefix = "model"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_sdpa = True  # accepted for all that: the composition's attention is its own
    accepts_loss_kwargs = False  # losses are means, so gradient accumulation has to average them
    _keep_in_fp32_modules_strict = {"parser"}  # see `TopDownParser`

    def __init__(self, config: FastR2D2Config):
        super().__init__(config)
        config.check()  # `from_pretrained` sets the fields that it is given after the configuration was made

    @classmethod
    def from_pretrained(cls, *args: Any, **options: Any) -> Any:
        """As in transformers; the base model, also that of a head, remembers where its tokenizer lies."""
        loaded = super().from_pretrained(*args, **options)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        kept = ("subfolder", "cache_dir", "local_files_only")  # no token, which would be in copies of the model
        model.base_model._place = {name: options[name] for name in kept if options.get(name)}
        return loaded

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Token embeddings normal with ``initializer_range``, all else as PyTorch's defaults, like the original."""
        if isinstance(module, nn.Linear):
            bound = 1 / math.sqrt(module.in_features)
            if not (self.config.tie_word_embeddings and module is self.get_output_embeddings()):
                init.uniform_(module.weight, -bound, bound)  # a tied matrix is the token embedding's
            if module.bias is not None:
                init.uniform_(module.bias, -bound, bound)
        elif isinstance(module, nn.LSTM):
            bound = 1 / math.sqrt(module.hidden_size)
            for parameter in module.parameters():
                init.uniform_(parameter, -bound, bound)
        elif isinstance(module, nn.Embedding):
            is_token_embedding = module is getattr(self.base_model, "embeddings", None)
            init.normal_(module.weight, std=self.config.initializer_range if is_token_embedding else 1.0)
        elif isinstance(module, TopDownParser) and self.config.confidence_words:
            init.zeros_(module.confidence_weight)
        else:
            super()._init_weights(module)

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """As in transformers; the parser's own embeddings follow.

        Raises:
            ValueError: for a vocabulary without the special tokens of the configuration.
        """
        if new_num_tokens is not None:
            multiple = pad_to_multiple_of or 1
            self.config.check_token_ids(-(-new_num_tokens // multiple) * multiple)
        embeddings = super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        parser: Any = self.base_model.parser
        if parser.embeddings is not embeddings:
            parser.embeddings = self._get_resized_embeddings(
                parser.embeddings, embeddings.num_embeddings, mean_resizing=mean_resizing
            )
        return embeddings

    def check_weights(self) -> None:
        """Raise ValueError, naming it, if a weight has NaN or infinity."""
        for name, weight in self.named_parameters():
            can_be_read = type(weight) is nn.Parameter and not weight.is_meta  # not quantised, sharded or offloaded
            if can_be_read and not weight.isfinite().all():
                raise ValueError(
                    f"NaN or infinity in the weight {name} ({weight.dtype}); load another checkpoint, or load it in "
                    "float32 if its values are finite there"
                )

    def parse(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        atom_spans: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        split_scores: Tensor | None = None,
        split_bonus: Tensor | None = None,
        split_signs: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> FastR2D2ParserOutput:
        """The parser's trees, without encoding anything; every model has a parser.

        Arguments and errors are those of `FastR2D2Model`; ``split_scores`` take the place of the parser's. ``labels``
        are trees to learn, as for `FastR2D2ForConstituencyParsing`.
        """
        input_ids, sentences, nesting = self._read(input_ids, attention_mask, atom_spans)
        parser: Any = self.base_model.parser
        scores = parser(input_ids, sentences.lengths) if split_scores is None else split_scores
        scores, _ = add_split_bonus(scores, split_bonus, split_signs, sentences, self.config)
        ranks = merge_ranks(read_split_scores(scores, sentences), sentences.lengths, nesting)
        spans, lengths = to_device([tree_spans(ranks, sentences.lengths), sentences.lengths], scores.device)
        loss = None
        if labels is not None:
            check_tree_labels(labels, sentences)
            loss = tree_label_loss(sentences.flatten(scores), sentences.flatten(labels), lengths)
        return FastR2D2ParserOutput(loss, scores, sentences.unflatten_spans(spans))

    def _read(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        atom_spans: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
    ) -> tuple[Tensor, Sentences, Tensor | None]:
        """Ids or vectors padded on the right, the sentences and, on the host, the nesting of their span constraints."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give either input_ids or inputs_embeds")
        config = self.config
        if inputs_embeds is not None:
            given, sentences, spans = check_embeddings(inputs_embeds, attention_mask, atom_spans, config.hidden_size)
        else:
            ids: Any = input_ids
            given, sentences, spans = check_ids(ids, attention_mask, atom_spans, config)
        if spans is None:
            return given, sentences, None
        return given, sentences, span_nesting(spans, sentences.is_token.shape[1] - 1, config.nested_spans)


def parameter_groups(
    model: nn.Module, learning_rate: float = 5e-5, parser_learning_rate: float = 1e-2, weight_decay: float = 0.01
) -> list[dict]:
    """Parameters by learning rate: encoder and parser are trained together at rates far apart (paper, Section 4.1).

    Groups for any torch optimizer, such as ``torch.optim.AdamW(parameter_groups(model))``; `Trainer` takes that as
    ``optimizers=(optimizer, None)``. The defaults are the paper's rates.

    Args:
        model: any Fast-R2D2 model.
        learning_rate: of the encoder, heads included.
        parser_learning_rate: of the parser.
        weight_decay: of all but biases.

    Returns:
        Dicts with ``params``, ``lr``, ``weight_decay`` and ``name``, which is ``"encoder"`` or ``"parser"``. The bias
        of the parser's scores is in none of them: it changes no tree and no loss.
    """
    rates = {"encoder": learning_rate, "parser": parser_learning_rate}
    groups: dict[tuple[str, float], dict[str, Any]] = {
        (name, decay): {"params": [], "lr": rate, "weight_decay": decay, "name": name}
        for name, rate in rates.items()
        for decay in (weight_decay, 0.0)
    }
    for name, parameter in model.named_parameters():
        # Trees and losses do not change if all scores of a sentence rise alike. So the gradient of the scores' bias is
        # nothing but rounding errors, and AdamW would turn these into steps of a full learning rate.
        if not name.endswith("parser.score.bias"):
            is_bias = "bias" in name.rpartition(".")[2]  # an LSTM's are bias_ih_l0, ...
            group = "parser" if "parser" in name.split(".") else "encoder"  # also within a wrapper
            groups[group, 0.0 if is_bias else weight_decay]["params"].append(parameter)
    return [group for group in groups.values() if group["params"]]
