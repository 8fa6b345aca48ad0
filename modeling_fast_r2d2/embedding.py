"""Texts to vectors: `FastR2D2Model.encode` and `FastR2D2Model.constituents`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Real
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from .inputs import split_bonus_of
from .processor_code import processor_class

Result = TypeVar("Result")
Span = tuple[int, int]


class Constituent(NamedTuple):
    """A word or a constituent.

    Attributes:
        words: the words in it.
        span: its first and last word, inclusive. Punctuation that the model does not see is not counted.
        vector: ``(hidden_size,)`` float32.
    """

    words: list[str]
    span: tuple[int, int]
    vector: np.ndarray


class TextEncoder:
    """A model's methods for texts. They use the tokenizer that lies beside the model's weights."""

    config: Any
    _tokenizer: PreTrainedTokenizerBase | None = None
    _place: dict[str, Any] = {}  # where the weights were and how they were found, besides their folder's name

    @classmethod
    def from_pretrained(cls, *args: Any, **options: Any) -> Any:
        """As in transformers; but a checkpoint without an encoder is refused, since vectors would be drawn by chance.

        Raises:
            ValueError: if the checkpoint lacks weights of the encoder.
        """
        wants_info = options.pop("output_loading_info", False)
        loaded: Any = super()
        model, info = loaded.from_pretrained(*args, output_loading_info=True, **options)
        if names := sorted(name for name in info["missing_keys"] if name.startswith("composition.")):
            raise ValueError(
                f"{model.name_or_path} lacks {len(names)} weights of an encoder, such as {names[0]}; if it holds a "
                "parser alone, load it with FastR2D2ForConstituencyParsing"
            )
        return (model, info) if wants_info else model

    def encode(
        self,
        sentences: str | list[str],
        batch_size: int | None = 32,
        show_progress_bar: bool = False,
        normalize_embeddings: bool = False,
        tokenizer: PreTrainedTokenizerBase | None = None,
        batch_tokens: int | None = None,
    ) -> np.ndarray:
        """Vectors of texts, as sentence encoders give them, by ``config.encoding``.

        Args:
            sentences: one text or several; words are kept whole. Text without words is one ``[UNK]``. Punctuation is
                set aside if ``config.punctuation`` says so, as `TreeParser` does; trees are the same.
            batch_size: sentences encoded at once, those of like length together; None sets no limit.
            show_progress_bar: shows a progress bar on standard error.
            normalize_embeddings: scale vectors to length 1, so that their products are cosines.
            tokenizer: by default the one that lies beside the model's weights.
            batch_tokens: tokens encoded at once, padding included. On a GPU this, with ``batch_size=None``, is the
                better limit: levels stay large for short sentences, too.

        Returns:
            ``(sentences, hidden_size)`` float32, or ``(hidden_size,)`` for one text.

        Raises:
            ValueError: for a limit below 1, without a tokenizer, and naming the row of what is no text.
        """
        processor = self._processor(tokenizer)
        model: Any = self

        def run(batch: list[Any]) -> list[np.ndarray]:
            inputs = model_inputs(model, processor, batch)
            return list(model(**inputs, return_dict=True).pooler_output.float().cpu().numpy())

        read = processor.read([sentences] if isinstance(sentences, str) else sentences)
        found = in_batches(model, read, run, batch_size, batch_tokens, show_progress_bar)
        vectors = np.array(found, np.float32).reshape(len(found), self.config.hidden_size)
        if normalize_embeddings:
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True).clip(min=1e-12)
        return vectors[0] if isinstance(sentences, str) else vectors

    def constituents(self, sentence: str, tokenizer: PreTrainedTokenizerBase | None = None) -> list[Constituent]:
        """Words and constituents of the parser's tree with their vectors, from left to right, the wider first."""
        processor = self._processor(tokenizer)
        [read] = processor.read([sentence])
        [vectors] = node_vectors(self, processor, [read])
        found = [
            Constituent(read.words[first : last + 1], (first, last), vectors[first, last]) for first, last in vectors
        ]
        return sorted(found, key=lambda constituent: (constituent.span[0], -constituent.span[1]))

    def sentence_vectors(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        atom_spans: Tensor | None = None,
        split_signs: Tensor | None = None,
    ) -> Tensor:
        """Sentence vectors by ``config.encoding``, with gradients, as sentence-transformers asks for them.

        Args:
            input_ids, attention_mask, atom_spans, split_signs: as `FastR2D2Processor` makes them; see its `pad`.

        Returns:
            ``(batch, hidden_size)``.

        Raises:
            ValueError: without ``atom_spans`` and ``split_signs``: trees and vectors would not be those of `encode`.
        """
        if atom_spans is None or split_signs is None:
            raise ValueError(
                "sentence vectors need atom_spans and split_signs, as FastR2D2Processor gives for texts, not for pairs"
            )
        model: Any = self
        # Losses that cut a batch into smaller ones take padding from all tensors but this, which is narrower by one.
        split_signs = split_signs[:, : input_ids.shape[1] - 1]
        output = model(input_ids, attention_mask, atom_spans, split_signs=split_signs, return_dict=True)
        return output.pooler_output

    def _processor(self, tokenizer: PreTrainedTokenizerBase | None) -> Any:
        """The processor of texts, with the given tokenizer or the model's own."""
        found = processor_class(self.config)
        return found(tokenizer or self._own_tokenizer(), punctuation=self.config.punctuation)

    def _own_tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer, loaded once, in the revision of the weights."""
        if self._tokenizer is None:
            options = {
                "revision": getattr(self.config, "_commit_hash", None) or "main",
                "trust_remote_code": "transformers_modules" in type(self).__module__,  # it was trusted then
                **self._place,
            }
            try:
                self._tokenizer = AutoTokenizer.from_pretrained(self.config.name_or_path, **options)
            except (OSError, ValueError) as error:
                place = self.config.name_or_path
                raise ValueError(f"no tokenizer beside the weights, in {place!r}; give tokenizer=") from error
        return self._tokenizer


# Of each module that is evaluated now: by how many callers, and whether it was in training before the first of them.
_EVALUATED: dict[nn.Module, tuple[int, bool]] = {}
_LOCK = Lock()


@contextmanager
def evaluation(model: nn.Module) -> Iterator[None]:
    """Inside, the model works without gradients, dropout and noise. Threads may evaluate it, or parts of it, at the
    same time: after the last of them, each module is in its old mode."""
    modules = list(model.modules())
    with _LOCK:
        for module in modules:
            callers, was_training = _EVALUATED.get(module, (0, module.training))
            _EVALUATED[module] = callers + 1, was_training
            module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        with _LOCK:
            for module in modules:
                callers, was_training = _EVALUATED.pop(module)
                if callers > 1:
                    _EVALUATED[module] = callers - 1, was_training
                else:
                    module.training = was_training


def on_device(tensor: Tensor, model: Any) -> Tensor:
    """A tensor on a model's device. Where weights are offloaded, they come to the tensor, and it stays."""
    return tensor if model.device.type == "meta" else tensor.to(model.device)


def model_inputs(
    model: Any, processor: Any, sentences: Sequence[Any], bounds_bonus: float | None = None, keep_words: bool = True
) -> dict[str, Tensor]:
    """The inputs of a model for one batch, on its device.

    Args:
        processor: `FastR2D2Processor`.
        sentences: as the processor has read them.
        bounds_bonus: in place of the configuration's, in nats; None leaves it to the model.
        keep_words: as for the processor's `pad`.
    """
    batch = {name: on_device(tensor, model) for name, tensor in processor.pad(sentences, keep_words).items()}
    if bounds_bonus is not None:
        signs = batch.pop("split_signs")
        batch["split_bonus"] = split_bonus_of(signs, bounds_bonus, model.config.names_bonus)
    return batch


def in_batches(
    model: nn.Module,
    sentences: Sequence[Any],
    run: Callable[[list[Any]], Sequence[Result]],
    batch_size: int | None = None,
    batch_tokens: int | None = None,
    show_progress: bool = False,
) -> list[Result]:
    """Run a model on sentences, those of like length together.

    Args:
        sentences: as a processor has read them.
        run: from one batch to a result for each of its sentences.
        batch_size, batch_tokens: as for `batches_by_length`.

    Returns:
        The results in the order of the sentences.
    """
    results: dict[int, Result] = {}
    batches = batches_by_length([len(sentence.input_ids) for sentence in sentences], batch_size, batch_tokens)
    bar = tqdm(total=len(sentences), desc="encoding", unit=" sentences", disable=not show_progress)
    with evaluation(model), bar:
        for rows in batches:
            results |= zip(rows, run([sentences[row] for row in rows]), strict=True)
            bar.update(len(rows))
    return [results[row] for row in range(len(sentences))]


def batches_by_length(
    lengths: Sequence[int], batch_size: int | None = None, batch_tokens: int | None = None
) -> Iterator[list[int]]:
    """Group rows of similar length into batches, the shortest rows first.

    Args:
        lengths: the number of tokens of each row.
        batch_size: the maximum number of rows per batch; None sets no limit.
        batch_tokens: the maximum number of tokens per batch, padding included; None sets no limit. A row that is longer
            than this is a batch of its own.

    Yields:
        The row numbers of a batch.

    Raises:
        ValueError: if a limit is below 1 or no number.
    """
    for name, limit in (("batch_size", batch_size), ("batch_tokens", batch_tokens)):
        if limit is not None:
            check_limit(name, limit)
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        is_full = (batch_size and len(batch) >= batch_size) or (
            batch_tokens and (len(batch) + 1) * lengths[row] > batch_tokens
        )
        if batch and is_full:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def check_limit(name: str, limit: Any) -> None:
    """Raise ValueError for what is no number of 1 or more."""
    if not isinstance(limit, Real) or limit < 1 or limit != limit:  # NaN
        raise ValueError(f"{name} must be >= 1, got {limit!r}")


def node_vectors(
    model: Any, processor: Any, sentences: Sequence[Any], bounds_bonus: float | None = None
) -> list[dict[Span, np.ndarray]]:
    """Encode one batch along the parser's trees.

    Args:
        model: with an encoder.
        processor, sentences, bounds_bonus: as for `model_inputs`.

    Returns:
        For each sentence the vectors of its words and constituents, ``(hidden_size,)`` float32, by first and last word;
        a word of several pieces is a constituent over them.
    """
    with evaluation(model):
        inputs = model_inputs(model, processor, sentences, bounds_bonus)
        output = model(**inputs, encoding="forced", return_dict=True)
        vectors = model.base_model.pool(output.last_hidden_state).float().cpu().numpy()
    found, padded_leaves = [], (vectors.shape[1] + 1) // 2
    for sentence, spans, nodes in zip(sentences, output.spans.tolist(), vectors, strict=True):
        pieces = len(sentence.word_ids)
        located = [*((piece, piece) for piece in range(pieces)), *spans[: pieces - 1]]
        of_nodes = [*nodes[:pieces], *nodes[padded_leaves : padded_leaves + pieces - 1]]
        found.append(over_words(sentence.word_ids, located, of_nodes))
    return found


def over_words(word_ids: Sequence[int], spans: Iterable[Span], values: Iterable[Result]) -> dict[Span, Result]:
    """The values of spans of pieces, by spans of words, as far as they hold whole words."""
    begins = {piece for piece, word in enumerate(word_ids) if piece == 0 or word != word_ids[piece - 1]}
    begins.add(len(word_ids))
    pairs = zip(spans, values, strict=True)
    return {(word_ids[i], word_ids[j]): value for (i, j), value in pairs if i in begins and j + 1 in begins}
