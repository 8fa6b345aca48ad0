"""Fast-R2D2 as transformers models: the base model, and heads for pretraining, parsing and classification."""

import contextlib
import dataclasses
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification
from transformers.loss.loss_utils import ForSequenceClassificationLoss
from transformers.utils import logging
from transformers.utils.generic import can_return_tuple

from .chart import Chart, chosen_tree, planned_tree, to_device
from .chart_planning import merge_ranks, plan_chart, plan_tree
from .choice import gumbel_noise
from .composition import Composition, CompositionStack
from .configuration_fast_r2d2 import ENCODINGS, MINIMUM_RISK, FastR2D2Config
from .embedding import TextEncoder
from .encoder import EncodedChart, encode_chart, encode_forced, read_out
from .heads import ClassificationHead, LanguageModelHead, language_model_contexts
from .heuristic_pruning import encode_heuristic
from .inputs import (
    EmbeddedBatch,
    add_split_bonus,
    check_encoding,
    check_finite_scores,
    check_ids_to_predict,
    check_labels,
    kind_of,
    read_split_scores,
    refuse_rows,
    split_pairs,
)
from .outputs import FastR2D2ClassifierOutput, FastR2D2ForPreTrainingOutput, FastR2D2Output, FastR2D2ParserOutput
from .parser import TopDownParser
from .pretrained_model import FastR2D2PreTrainedModel, left_to_python
from .tree_distribution import TreeDistribution

logger = logging.get_logger(__name__)


class FastR2D2Model(TextEncoder, FastR2D2PreTrainedModel):
    """Parser and encoder: sentences to sentence vectors, constituent vectors and trees.

    ``last_hidden_state`` holds the nodes of a tree, ``2 * n - 1`` for ``n`` tokens, in a batch of ``seq_len``:

    | rows | what |
    | --- | --- |
    | ``0 ... n - 1`` | the tokens, without context |
    | ``seq_len + k``, for ``k`` in ``0 ... n - 2`` | the constituent that splits after token ``k``, over ``spans[k]`` |
    | all others | zeros |

    To compare them, put rows through `pool`; ``pooler_output`` is that of the root, the constituent over all tokens.
    A mean over all rows, or over those of ``attention_mask``, is no sentence vector: take ``pooler_output``, or
    `encode` for texts.
    """

    _auto_class = "AutoModel"
    _input_embed_layer = "embeddings"  # what transformers gets, sets and resizes
    _keys_to_ignore_on_load_unexpected = [r"^lm_head\.", r"^decoder_stack\.", r"^classifier\."]  # the heads'

    def __init__(self, config: FastR2D2Config):
        super().__init__(config)
        self.embeddings: Any = nn.Embedding(config.vocab_size, config.hidden_size)  # resizing may replace it
        self.composition = Composition(config)
        self.parser = TopDownParser(config)
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size, bias=False) if config.pooler else None
        self._has_checked_weights = False
        self.post_init()

    def pool(self, nodes: Tensor) -> Tensor:
        """The vectors of words, constituents or sentences that are compared by their cosines, from those of nodes.

        Args:
            nodes: ``(..., hidden_size)``, such as ``last_hidden_state``.

        Returns:
            The same shape; without ``config.pooler`` the same vectors.
        """
        return nodes if self.pooler is None else self.pooler(nodes)

    @left_to_python
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        atom_spans: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        split_scores: Tensor | None = None,
        encoding: str | None = None,
        token_type_ids: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        split_bonus: Tensor | None = None,
        split_signs: Tensor | None = None,
    ) -> FastR2D2Output:
        """
        Args:
            input_ids: ``(batch, seq_len)`` long.
            attention_mask: ``(batch, seq_len)``, 1 on tokens and 0 on padding, which is on either side; by default 0
                where an id is ``pad_token_id``. All other positions, in and out, count from a sentence's first token:
                outputs are those of the same sentences padded on the right. A row without a token is one
                ``unk_token_id``, and a batch of texts without tokens may be ``(batch, 0)``.
            atom_spans: ``(batch, max_spans, 2)`` long, spans that must be constituents of the parser's tree, such as
                words of several pieces; inclusive, padded with -1. R2D2's heuristic has no parser and ignores them.
            inputs_embeds: ``(batch, seq_len, hidden_size)``, of any float dtype, in place of ``input_ids``; needs
                ``split_scores``, and a token in each row.
            split_scores: ``(batch, seq_len - 1)`` in place of the parser's.
            encoding: ``"forced"``, ``"chart"`` or ``"heuristic"``; None takes ``config.encoding``. ``"minimum_risk"``
                is ``"chart"``, root included, but ``spans`` and constituents are those of another tree of it: the one
                that shares most constituents with a tree that the encoder draws from the chart and one that the parser
                draws from it (see `TreeDistribution`).
            token_type_ids: ignored; tokenizers may give it.
            output_hidden_states: whether to return ``hidden_states``; None takes the configuration's value.
            output_attentions: ignored; attentions are None (see `outputs`).
            split_bonus: ``(batch, seq_len - 1)``, nats added to split scores and, for a tree of minimum risk, to the
                encoder's scores of the candidates that split there.
            split_signs: ``(batch, seq_len - 1)`` of a whole-number type, as `FastR2D2Processor` gives it: 1 where
                punctuation was set aside, -1 within names and lists, else 0. There, the configuration's
                ``bounds_bonus`` and ``names_bonus`` are added and taken away like a ``split_bonus``.

        Raises:
            ValueError: for any other input, before computing; it names the row.
        """
        encoding = check_encoding(self.config.encoding if encoding is None else encoding, (*ENCODINGS, MINIMUM_RISK))
        inputs = (input_ids, attention_mask, atom_spans, inputs_embeds, split_scores, split_bonus, split_signs)
        batch = self.read_batch(*inputs, output_hidden_states=output_hidden_states)
        if encoding == MINIMUM_RISK:
            check_finite_scores(batch, "a tree of minimum risk needs finite scores and a finite split_bonus")
        chart, encoded = self.encode_batch(
            batch, "chart" if encoding == MINIMUM_RISK else encoding, reachable_only=True
        )
        if encoding == MINIMUM_RISK:
            of_encoder, scores = self.encoder_trees(batch, chart, encoded), batch.sentences.flatten(batch.split_scores)
            chosen = of_encoder.minimum_risk(TreeDistribution.of_parser(chart, scores))
            encoded = dataclasses.replace(encoded, chosen=chosen)
        return FastR2D2Output(**self.output_fields(batch, chart, encoded))

    def read_batch(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        atom_spans: Tensor | None,
        inputs_embeds: Tensor | None = None,
        split_scores: Tensor | None = None,
        split_bonus: Tensor | None = None,
        split_signs: Tensor | None = None,
        output_hidden_states: bool | None = None,
    ) -> EmbeddedBatch:
        """Check the inputs of `forward`; look up leaves and score split points."""
        given, sentences, nesting = self._read(input_ids, attention_mask, atom_spans, inputs_embeds)
        if split_scores is None and input_ids is None:
            raise ValueError("the parser reads input_ids; give split_scores with inputs_embeds")
        scores = self.parser(given, sentences.lengths) if split_scores is None else split_scores
        scores, bonus = add_split_bonus(scores, split_bonus, split_signs, sentences, self.config)
        checked = None
        is_given = split_scores is not None or bonus is not None
        if is_given or not self.training:  # the parser's own reach the loss in training, where loops look for NaN
            checked = read_split_scores(scores, sentences)
        flat = sentences.flatten(given)
        token_ids = flat if inputs_embeds is None else None
        leaves, special = self._look_up(token_ids, sentences.places.device)
        leaves = leaves if inputs_embeds is None else flat.to(special["cls"].dtype)
        padded = None
        if self.config.output_hidden_states if output_hidden_states is None else output_hidden_states:
            padded = sentences.pad(leaves)
            leaves = sentences.flatten(padded)
        return EmbeddedBatch(sentences, token_ids, leaves, special, scores, checked, nesting, bonus, padded)

    def _look_up(self, token_ids: Tensor | None, device: torch.device) -> tuple[Tensor, dict[str, Tensor]]:
        """Leaves and special tokens in one lookup, since the gradient of each lookup is as large as the vocabulary."""
        config = self.config
        names = ("cls", "sum", "mask", "pair", "bos", "eos")
        [ids] = to_device([torch.tensor([getattr(config, f"{name}_token_id") for name in names], device="cpu")], device)
        ids = ids if token_ids is None else torch.cat([ids, token_ids])
        [rows] = self.embeddings(ids[None])  # hooks, such as that of NEFTune's noise, know batches of texts only
        *special, leaves = rows.split([1] * len(names) + [len(rows) - len(names)])
        return leaves, dict(zip(names, special, strict=True))

    def encode_batch(
        self,
        batch: EmbeddedBatch,
        encoding: str,
        reachable_only: bool = False,
        chart_scores: Tensor | None = None,
        vectors_train_choice: bool = True,
    ) -> tuple[Chart, EncodedChart]:
        """Plan the chart and encode it. In training, noise samples the merge order and the choice of candidates.

        Args:
            encoding: ``"forced"``, ``"chart"`` or ``"heuristic"``.
            reachable_only: leave out cells that no tree from the root uses; the language model needs them.
            chart_scores: ``(batch, seq_len - 1)``, prune the chart in place of ``batch.split_scores``.
            vectors_train_choice: as for `encode_chart`.

        Raises:
            ValueError: in evaluation, for NaN or infinity in the weights or in the vectors. In training they reach the
                loss, where loops look for them.
        """
        config, lengths, composition = self.config, batch.sentences.lengths, self.composition
        leaves = batch.leaves
        tasks = torch.cat([batch.special["cls"], batch.special["sum"]])
        choice_noise = config.choice_noise if self.training else 0.0
        window_size = min(config.window_size, max(1, int(lengths.max()) - 1))  # no cell has more candidates
        if encoding == "heuristic":
            chart, encoded = encode_heuristic(lengths, leaves, composition, tasks, window_size, choice_noise)
        else:
            scores = batch.host_scores if chart_scores is None else chart_scores.detach().cpu()
            if self.training and encoding == "chart" and config.split_noise:
                scores = scores + gumbel_noise(scores, config.split_noise)
            ranks = merge_ranks(scores, lengths, batch.nesting)  # charts are planned on the host
            if encoding == "forced":
                chart = plan_tree(ranks, lengths).to(leaves.device)
                encoded = encode_forced(chart, leaves, composition, tasks)
            else:
                chart = plan_chart(ranks, lengths, window_size, reachable_only).to(leaves.device)
                encoded = encode_chart(chart, leaves, composition, tasks, choice_noise, vectors_train_choice)
        if not self.training:
            self._check_encoded(chart, encoded)
        return chart, encoded

    def _check_encoded(self, chart: Chart, encoded: EncodedChart) -> None:
        """Raise ValueError naming a bad weight, once per model and wherever vectors are bad, or else the rows."""
        is_bad = ~encoded.nodes.isfinite().all(-1)
        if encoded.log_prob is not None:
            is_bad |= ~encoded.log_prob.isfinite()
        are_bad = bool(is_bad.any())
        if are_bad or not self._has_checked_weights:  # an infinite weight need not show in the vectors
            self.check_weights()
            self._has_checked_weights = True
        if are_bad:
            first_tokens = chart.spans[is_bad, 0]
            rows = torch.bucketize(first_tokens, chart.offsets, right=True) - 1
            is_bad_row = torch.zeros_like(chart.offsets, dtype=torch.bool).index_fill(0, rows, True)
            remedy = "all weights are finite, so its numbers are too large; use torch.float32 or torch.bfloat16"
            refuse_rows(is_bad_row, f"NaN or infinity in its vectors ({encoded.nodes.dtype})", remedy)

    @staticmethod
    def encoder_trees(batch: EmbeddedBatch, chart: Chart, encoded: EncodedChart) -> TreeDistribution:
        """The encoder's distribution over the trees of a chart, with the batch's bonus for some split points."""
        trees = TreeDistribution(chart, encoded.choices())
        return trees if batch.split_bonus is None else trees.add_bonus(batch.sentences.flatten(batch.split_bonus))

    def output_fields(
        self, batch: EmbeddedBatch, chart: Chart, encoded: EncodedChart, with_constituents: bool = True
    ) -> dict[str, Any]:
        """The fields of `FastR2D2Output`; ``last_hidden_state`` and ``spans`` only ``with_constituents``, or if hidden
        states are wanted."""
        wants_states = batch.padded_leaves is not None
        constituents = self._constituents(batch, chart, encoded) if with_constituents or wants_states else {}
        return constituents | {
            "hidden_states": (batch.padded_leaves, constituents["last_hidden_state"]) if wants_states else None,
            "pooler_output": self.pool(encoded.nodes.index_select(0, chart.roots)),
            "split_scores": batch.split_scores,
            "log_prob": None if encoded.log_prob is None else encoded.log_prob[chart.roots],
        }

    def _constituents(self, batch: EmbeddedBatch, chart: Chart, encoded: EncodedChart) -> dict[str, Tensor]:
        best = planned_tree(chart) if encoded.log_prob is None else chosen_tree(chart, encoded.chosen)
        leaves = torch.arange(chart.num_tokens, device=best.device)
        places = torch.cat([batch.sentences.pad(leaves, -1), batch.sentences.pad(best, -1)[:, :-1]], dim=1)
        states = encoded.nodes.index_select(0, places.clamp(min=0).flatten()).unflatten(0, places.shape)
        spans = chart.spans[best].masked_fill(best[:, None] < 0, -1)
        return {
            "last_hidden_state": states.masked_fill_(places[..., None] < 0, 0),
            "spans": batch.sentences.unflatten_spans(spans),
        }


class FastR2D2ForConstituencyParsing(FastR2D2PreTrainedModel):
    """The parser alone: trees without an encoder. Loads from any Fast-R2D2 checkpoint."""

    supports_gradient_checkpointing = False  # that is for composition layers
    _auto_class = "AutoModelForConstituencyParsing"
    _keys_to_ignore_on_load_unexpected = [r"(?!parser\.|model\.parser\.)"]

    def __init__(self, config: FastR2D2Config):
        super().__init__(config)
        self.parser = TopDownParser(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.parser.embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.parser.embeddings = value

    @left_to_python
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        atom_spans: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        split_bonus: Tensor | None = None,
        split_signs: Tensor | None = None,
    ) -> FastR2D2ParserOutput:
        """
        Args:
            labels: ``(batch, seq_len - 1, 2)`` long, trees to learn, as ``spans`` of an output; -1 for split points
                without a label.
            output_hidden_states, output_attentions: ignored, since nothing is encoded.

        Other arguments and errors are those of `FastR2D2Model`. With labels the ``loss`` is
        ``-log p(tree) / n``, a mean over sentences of ``n`` tokens.
        """
        return self.parse(
            input_ids, attention_mask, atom_spans, split_bonus=split_bonus, split_signs=split_signs, labels=labels
        )


class FastR2D2WithLanguageModel(FastR2D2PreTrainedModel):
    """A base model and the losses that need no labels (paper, Section 3.2)."""

    _tied_weights_keys = {"lm_head.decoder.weight": "model.embeddings.weight"}

    def __init__(self, config: FastR2D2Config):
        super().__init__(config)
        self.model = FastR2D2Model(config)
        self.lm_head = LanguageModelHead(config)
        if config.tie_word_embeddings:  # one tensor in a file; `Trainer` need not miss the other
            self._keys_to_ignore_on_save = list(self._tied_weights_keys)
        if not config.tie_decoder:
            self.decoder_stack = CompositionStack(config)

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head.decoder

    def set_output_embeddings(self, value: nn.Linear) -> None:
        self.lm_head.decoder = value

    def run_decoder(self, task: Tensor, contexts: Tensor) -> Tensor:
        """The decoder's output at one task token, from left and right vectors; shapes as in `encoder.read_out`."""
        stack = self.model.composition.stack if self.config.tie_decoder else self.decoder_stack
        return read_out(stack, task, contexts)

    def self_supervised_losses(self, batch: EmbeddedBatch, chart: Chart, encoded: EncodedChart) -> dict[str, Tensor]:
        """The losses of an encoded chart that have weight, by name: ``"lm"`` and ``"tree"``. The language model's loss
        needs a chart with all its cells."""
        losses = {}
        if self.config.lm_loss_weight:
            losses["lm"] = self.lm_loss(batch, chart, encoded)
        if self.config.tree_loss_weight:
            losses["tree"] = self.tree_loss(batch, chart, encoded)
        return losses

    def lm_loss(self, batch: EmbeddedBatch, chart: Chart, encoded: EncodedChart) -> Tensor:
        """The language model's loss, in nats: a mean over tokens. It needs a chart with all its cells, or a tree."""
        token_ids = check_ids_to_predict(batch)
        ends = torch.cat([batch.special["bos"], batch.special["eos"]])
        contexts = language_model_contexts(chart, encoded.nodes, ends)
        hidden = self.run_decoder(batch.special["mask"], contexts)
        return self.lm_head.loss(hidden, token_ids.long())

    def tree_loss(self, batch: EmbeddedBatch, chart: Chart, encoded: EncodedChart) -> Tensor:
        """The parser's loss, in nats: a mean over sentences (see `TreeDistribution`)."""
        trees, num_trees, counts = TreeDistribution(chart, encoded.choices()), self.config.num_tree_samples, None
        if self.config.tree_objective == "sampled":
            counts = trees.sample(num_trees) / num_trees
        return trees.tree_loss(batch.sentences.flatten(batch.split_scores), counts)

    def weighted_sum(self, **losses: Tensor) -> Tensor | None:
        """Sum of the losses, each times the configuration's ``<name>_loss_weight``; None without any."""
        terms = [getattr(self.config, f"{name}_loss_weight") * loss for name, loss in losses.items()]
        return sum(terms) if terms else None


class FastR2D2ForPreTraining(FastR2D2WithLanguageModel):
    """Parser and encoder that teach each other on raw text (paper, Section 3.2)."""

    _auto_class = "AutoModelForPreTraining"

    def __init__(self, config: FastR2D2Config):
        super().__init__(config)
        self.post_init()

    @left_to_python
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        atom_spans: Tensor | None = None,
        split_scores: Tensor | None = None,
        encoding: str | None = None,
        token_type_ids: Tensor | None = None,
        output_constituents: bool | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        split_bonus: Tensor | None = None,
        split_signs: Tensor | None = None,
        return_loss: bool = True,
    ) -> FastR2D2ForPreTrainingOutput:
        """Arguments and errors as for `FastR2D2Model`, but ``encoding`` is ``"chart"``, the default, or
        ``"heuristic"``, since the losses need a chart. The language model's targets are ``input_ids`` themselves.

        Args:
            output_constituents: whether to return ``last_hidden_state`` and ``spans``; None means in evaluation only.
            return_loss: ignored; it tells `Trainer` that evaluations have a loss without labels.
        """
        encoding = check_encoding("chart" if encoding is None else encoding)
        if encoding == "forced":
            raise ValueError('pretraining needs a chart; use encoding="chart" or "heuristic"')
        inputs = (input_ids, attention_mask, atom_spans, None, split_scores, split_bonus, split_signs)
        batch = self.model.read_batch(*inputs, output_hidden_states=output_hidden_states)
        if self.config.tree_loss_weight:
            check_finite_scores(batch)
        chart, encoded = self.model.encode_batch(batch, encoding)
        losses = self.self_supervised_losses(batch, chart, encoded)
        with_constituents = not self.training if output_constituents is None else output_constituents
        parts: dict[str, Any] = {f"{name}_loss": loss for name, loss in losses.items()}
        fields = self.model.output_fields(batch, chart, encoded, with_constituents)
        return FastR2D2ForPreTrainingOutput(self.weighted_sum(**losses), **parts, **fields)


class FastR2D2Classifier(FastR2D2WithLanguageModel):
    """The base of both classifiers, with the fine-tuning objective of the paper's Section 3.3."""

    _auto_class = "AutoModelForSequenceClassification"  # which loads a saved classifier as what it is
    sentences_per_row = 1

    def __init__(self, config: FastR2D2Config):
        super().__init__(config)
        self.classifier = ClassificationHead(config)
        self.post_init()
        if __name__.startswith("transformers_modules."):
            # Of remote code, transformers registers the class that it loads, and then takes it for all folders of this
            # code; with both registered, it takes the one that a folder's `architectures` names.
            both = FastR2D2ForSequenceClassification, FastR2D2ForPairClassification
            AutoModelForSequenceClassification.register(type(config), both, exist_ok=True)

    def by_sentence(self, inputs: dict[str, Tensor], token_type_ids: Tensor | None) -> dict[str, Tensor]:
        """The inputs of `forward` with one row per sentence."""
        if isinstance(token_type_ids, Tensor) and token_type_ids.any():
            logger.warning_once(
                "token_type_ids of 1 tell of pairs of texts, which are read here as one sentence each; "
                "FastR2D2ForPairClassification reads pairs"
            )
        return inputs

    def features(self, batch: EmbeddedBatch, roots: Tensor) -> Tensor:
        """The classifier's input, ``(batch, hidden_size)``, from the root vectors of all sentences."""
        return roots

    @left_to_python
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        atom_spans: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        split_scores: Tensor | None = None,
        labels: Tensor | None = None,
        encoding: str | None = None,
        token_type_ids: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        split_bonus: Tensor | None = None,
        split_signs: Tensor | None = None,
    ) -> FastR2D2ClassifierOutput:
        """Arguments and errors are those of `FastR2D2Model`; the class's docstring has the shapes.

        Args:
            encoding: ``"forced"``, ``"chart"`` or ``"heuristic"``; None takes ``config.encoding``.
            labels: ``(batch,)`` long for classes; float ``(batch,)`` or ``(batch, num_labels)`` for regression or
                several labels, as in transformers. With labels the output has a loss: in training the weighted sum of
                the task loss along the parser's tree, the task loss over the chart, the language-model loss and the
                tree loss; in evaluation the task loss of ``encoding``.
        """
        encoding = check_encoding(self.config.encoding if encoding is None else encoding)
        inputs = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "atom_spans": atom_spans,
            "inputs_embeds": inputs_embeds,
            "split_scores": split_scores,
            "split_bonus": split_bonus,
            "split_signs": split_signs,
        }
        given = {name: value for name, value in inputs.items() if value is not None}
        inputs |= self.by_sentence(given, token_type_ids)
        batch = self.model.read_batch(**inputs, output_hidden_states=output_hidden_states)
        if labels is not None:
            num_rows = len(batch.sentences.lengths) // self.sentences_per_row
            check_labels(labels, num_rows, self.config.num_labels or 1, self.config.problem_type)
        if self.training and labels is not None:
            return self._training_output(batch, labels, encoding)
        if self.training:
            logger.warning_once(
                "training without labels: only the logits are computed, so the chart's, the language model's and the "
                "parser's losses are left out; Trainer keeps labels back for label_smoothing_factor and "
                "compute_loss_func"
            )
        fields = self._fields(batch, *self.model.encode_batch(batch, encoding, reachable_only=True))
        loss = None if labels is None else self._task_loss(fields["logits"], labels)
        return FastR2D2ClassifierOutput(loss, **fields)

    def _training_output(self, batch: EmbeddedBatch, labels: Tensor, encoding: str) -> FastR2D2ClassifierOutput:
        """The four losses, as far as they have weight, and the fields of ``encoding`` if its task loss has."""
        if self.config.lm_loss_weight:
            check_ids_to_predict(batch)
        if not (self.config.forced_loss_weight or self.config.chart_loss_weight):
            raise ValueError("give forced_loss_weight or chart_loss_weight a value above 0 to train a classifier")
        if self.config.tree_loss_weight:
            check_finite_scores(batch)
        chart_encoding = "heuristic" if encoding == "heuristic" else "chart"
        losses, fields = {}, {}
        if self.config.forced_loss_weight:
            fields["forced"] = self._fields(batch, *self.model.encode_batch(batch, "forced"))
            losses["forced"] = self._task_loss(fields["forced"]["logits"], labels)
        if self.config.chart_loss_weight or self.config.lm_loss_weight or self.config.tree_loss_weight:
            chart, encoded = self._encode_chart_to_train(batch, chart_encoding)
            losses |= self.self_supervised_losses(batch, chart, encoded)
            if self.config.chart_loss_weight:
                fields[chart_encoding] = self._fields(batch, chart, encoded)
                losses["chart"] = self._task_loss(fields[chart_encoding]["logits"], labels)
        parts: dict[str, Any] = {f"{name}_loss": loss for name, loss in losses.items()}
        return FastR2D2ClassifierOutput(self.weighted_sum(**losses), **parts, **fields.get(encoding, {}))

    def _encode_chart_to_train(self, batch: EmbeddedBatch, encoding: str) -> tuple[Chart, EncodedChart]:
        """The chart that three of the losses share. The tree loss alone gives the encoder, its teacher, no gradient."""
        teaches_only = not self.config.chart_loss_weight and not self.config.lm_loss_weight
        with torch.no_grad() if teaches_only else contextlib.nullcontext():
            return self.model.encode_batch(batch, encoding, reachable_only=not self.config.lm_loss_weight)

    def _fields(self, batch: EmbeddedBatch, chart: Chart, encoded: EncodedChart) -> dict[str, Any]:
        """The output's fields that depend on the encoding."""
        fields = self.model.output_fields(batch, chart, encoded, with_constituents=False)
        logits = self.classifier(self.features(batch, encoded.nodes.index_select(0, chart.roots)))
        return {"logits": logits, "hidden_states": fields["hidden_states"]}

    def _task_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return ForSequenceClassificationLoss(labels, logits, self.config)


class FastR2D2ForSequenceClassification(FastR2D2Classifier):
    """Sentence classification or regression on the root vector (paper, Section 3.3)."""


class FastR2D2ForPairClassification(FastR2D2Classifier):
    """Classification of sentence pairs: both roots and ``[PAIR]`` through the decoder (paper, Section 4.2).

    The second axis of the inputs has the pair's two sentences: ``input_ids`` is ``(batch, 2, seq_len)``, ``atom_spans``
    ``(batch, 2, max_spans, 2)`` and so on. Error messages count sentences: pair ``b`` is rows 2b and 2b + 1. Only those
    about ``labels`` and ``token_type_ids`` count pairs.

    The output of a tokenizer for two texts works as well: ``input_ids`` ``(batch, seq_len)`` with ``token_type_ids``,
    0 on the first sentence and 1 on the second, and no ``atom_spans``.
    """

    sentences_per_row = 2

    def by_sentence(self, inputs: dict[str, Tensor], token_type_ids: Tensor | None) -> dict[str, Tensor]:
        is_in_one_row = isinstance(inputs.get("input_ids"), Tensor) and inputs["input_ids"].dim() == 2
        if is_in_one_row and token_type_ids is not None and inputs.keys() <= {"input_ids", "attention_mask"}:
            inputs = split_pairs(**inputs, token_type_ids=token_type_ids, pad_token_id=self.config.pad_token_id)
        for name, value in inputs.items():
            if not isinstance(value, Tensor) or value.dim() < 3 or value.shape[1] != 2:
                raise ValueError(
                    f"{name} must be (batch, 2, ...), a pair's two sentences, or input_ids (batch, seq_len) with "
                    f"token_type_ids and without atom_spans, got {kind_of(value)}"
                )
        return {name: value.flatten(0, 1) for name, value in inputs.items()}

    def features(self, batch: EmbeddedBatch, roots: Tensor) -> Tensor:
        pairs = torch.stack([roots[0::2], roots[1::2]])
        return self.run_decoder(batch.special["pair"], pairs)


__all__ = [
    "FastR2D2ForConstituencyParsing",
    "FastR2D2ForPairClassification",
    "FastR2D2ForPreTraining",
    "FastR2D2ForSequenceClassification",
    "FastR2D2Model",
    "FastR2D2PreTrainedModel",
]
