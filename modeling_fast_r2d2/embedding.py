"""Texts to vectors: `FastR2D2Model.encode` and `FastR2D2Model.constituents`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from tqdm.auto import tqdm
from transformers import AutoTokenizer, BatchEncoding, PreTrainedTokenizerBase

from .words import batches_by_length, pad_spans, tokenize_sentences


class Constituent(NamedTuple):
    """``span`` is the first and last word, inclusive; ``vector`` is ``(hidden_size,)`` float32."""

    words: list[str]
    span: tuple[int, int]
    vector: np.ndarray


class TextEncoder:
    """What a model does with texts, by the tokenizer that lies beside its weights."""

    _tokenizer: PreTrainedTokenizerBase | None = None

    def encode(
        self,
        sentences: str | list[str],
        batch_size: int | None = 32,
        show_progress_bar: bool = False,
        normalize_embeddings: bool = False,
        tokenizer: PreTrainedTokenizerBase | None = None,
        batch_tokens: int | None = None,
    ) -> np.ndarray:
        """Root vectors of texts, as sentence encoders give them, by ``config.encoding``.

        Args:
            sentences: one text or several; words are kept whole. Text without words is one ``[UNK]``.
            batch_size: sentences encoded at once, those of like length together; None sets no limit.
            show_progress_bar: on standard error.
            normalize_embeddings: to length 1, so that products are cosines.
            tokenizer: by default the one that lies beside the model's weights.
            batch_tokens: tokens encoded at once, padding included. With ``batch_size=None`` the better limit on a GPU,
                whose levels stay large for short sentences, too.

        Returns:
            ``(sentences, hidden_size)`` float32, or ``(hidden_size,)`` for one text.

        Raises:
            ValueError: for a limit below 1, and without a tokenizer.
        """
        texts = [sentences] if isinstance(sentences, str) else list(sentences)
        limits = {"batch_size": batch_size, "batch_tokens": batch_tokens}
        vectors = embed_sentences(self, tokenizer or self._own_tokenizer(), texts, limits, show_progress_bar)
        if normalize_embeddings:
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True).clip(min=1e-12)
        return vectors[0] if isinstance(sentences, str) else vectors

    def constituents(self, sentence: str, tokenizer: PreTrainedTokenizerBase | None = None) -> list[Constituent]:
        """Words and constituents of the parser's tree with their vectors, wider before narrower, left before right."""
        return constituents_of(self, tokenizer or self._own_tokenizer(), sentence)

    def _own_tokenizer(self) -> PreTrainedTokenizerBase:
        """Loaded once, in the revision that the weights are of."""
        if self._tokenizer is None:
            options = {
                "revision": getattr(self.config, "_commit_hash", None) or "main",
                "trust_remote_code": "transformers_modules" in type(self).__module__,  # it was trusted then
            }
            try:
                self._tokenizer = AutoTokenizer.from_pretrained(self.name_or_path, **options)
            except (OSError, ValueError) as error:
                place = self.name_or_path
                raise ValueError(f"no tokenizer beside the weights, in {place!r}; give tokenizer=") from error
        return self._tokenizer


@contextmanager
def evaluation(model) -> Iterator[None]:
    """Without gradients, dropout and noise; afterwards the model is in the mode it was in."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


def embed_sentences(
    model, tokenizer: PreTrainedTokenizerBase, sentences: list[str], limits: dict[str, int | None], show_progress: bool
) -> np.ndarray:
    """``(sentences, hidden_size)`` float32 root vectors, in the order of the sentences; ``limits`` are those of
    `batches_by_length`."""
    encoded = tokenize_sentences(tokenizer, sentences)
    vectors = np.empty((len(sentences), model.config.hidden_size), dtype=np.float32)
    with tqdm(total=len(sentences), desc="encoding", unit=" sentences", disable=not show_progress) as bar:
        for rows in batches_by_length([len(ids) for ids in encoded["input_ids"]], **limits):
            batch = _padded(tokenizer, encoded, rows, model.device)
            with evaluation(model):
                vectors[rows] = model(**batch).pooler_output.float().cpu().numpy()
            bar.update(len(rows))
    return vectors


def constituents_of(model, tokenizer: PreTrainedTokenizerBase, sentence: str) -> list[Constituent]:
    """Words and constituents over words of the parser's tree, wider before narrower, left before right."""
    encoded = tokenize_sentences(tokenizer, [sentence])
    [words], [word_ids] = encoded["words"], encoded["word_ids"]
    with evaluation(model):
        output = model(**_padded(tokenizer, encoded, [0], model.device), encoding="forced")
    nodes = output.last_hidden_state[0].float().cpu().numpy()
    pieces = [(piece, piece) for piece in range(len(word_ids))] + [tuple(span) for span in output.spans[0].tolist()]
    found = [
        Constituent(words[word_ids[i] : word_ids[j] + 1], (word_ids[i], word_ids[j]), vector)
        for (i, j), vector in zip(pieces, nodes, strict=True)
        if _begins_word(word_ids, i) and _begins_word(word_ids, j + 1)
    ]
    return sorted(found, key=lambda constituent: (constituent.span[0], -constituent.span[1]))


def _begins_word(word_ids: list[int], piece: int) -> bool:
    return piece in (0, len(word_ids)) or word_ids[piece] != word_ids[piece - 1]


def _padded(tokenizer: PreTrainedTokenizerBase, encoded: dict[str, list], rows: list[int], device) -> BatchEncoding:
    ids, spans = ([encoded[name][row] for row in rows] for name in ("input_ids", "atom_spans"))
    batch = tokenizer.pad(
        {"input_ids": ids}, padding_side="right", return_attention_mask=True, return_tensors="pt", verbose=False
    )
    batch["atom_spans"] = pad_spans(spans)
    return batch.to(device)
