"""Phrases of a corpus that say something like a given one: constituents, found by their vectors."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from tqdm.auto import tqdm

from tokenization_fast_r2d2.language import are_marks
from tokenization_fast_r2d2.lines import chunks
from tokenization_fast_r2d2.words import check_text, words_of_texts

from ..text_files import disk_errors, write_aside
from .tree_parser import TreeParser

LINES_AT_ONCE = 2_000
LONGEST_PHRASE = 8  # words
PROBE = "the old bridge"  # its vector tells models apart


class Neighbour(NamedTuple):
    """A phrase of the corpus.

    Attributes:
        cosine: of its vector and that of the phrase that was looked for.
        words: the words of the first sentence that has it.
        span: its first and last word there, inclusive.
    """

    cosine: float
    words: list[str]
    span: tuple[int, int]

    @property
    def phrase(self) -> str:
        return " ".join(self.words[self.span[0] : self.span[1] + 1])


class PhraseIndex:
    """The constituents of a corpus, each once, whatever its capitals, with their vectors.

    Args:
        sentences: the words of each sentence, with blanks between them.
        places: ``(phrases, 3)`` int32: sentence, first word and last word of each phrase.
        vectors: ``(phrases, hidden_size)`` float16, of length 1.
        probe: ``(hidden_size,)`` float32, the vector of `PROBE` by the same model.
        source: what the index was made of, as JSON can hold it.
    """

    def __init__(
        self, sentences: list[str], places: np.ndarray, vectors: np.ndarray, probe: np.ndarray, source: dict[str, Any]
    ):
        self.sentences, self.places, self.vectors, self.probe, self.source = sentences, places, vectors, probe, source

    def __len__(self) -> int:
        return len(self.places)

    @classmethod
    def build(
        cls,
        parser: TreeParser,
        texts: Iterable[str],
        max_words: int = LONGEST_PHRASE,
        source: dict[str, Any] | None = None,
        show_progress: bool = False,
    ) -> "PhraseIndex":
        """Encode texts, one sentence each.

        Args:
            parser: of words, with a model that has an encoder.
            max_words: the length of the longest phrases; the shortest have two words.
            source: as for the class.
            show_progress: shows a progress bar on standard error.

        Raises:
            ValueError: for a single text, and if no text has a phrase.
        """
        if isinstance(texts, str):
            raise ValueError("texts must be several texts, got one; put it in a list")
        sentences: list[str] = []
        places, vectors, seen = [], [], set()
        with tqdm(unit=" sentences", desc="encoding", disable=not show_progress) as bar:
            for chunk in chunks(texts, LINES_AT_ONCE):
                for words, found in _encode(parser, chunk):
                    kept = []
                    for (first, last), vector in found.items():
                        phrase = " ".join(words[first : last + 1]).lower()
                        if 1 <= last - first < max_words and phrase not in seen:
                            seen.add(phrase)
                            kept.append(((len(sentences), first, last), vector))
                    if kept:
                        sentences.append(" ".join(words))
                        places += [place for place, _ in kept]
                        vectors.append(_of_length_1(np.stack([vector for _, vector in kept])).astype(np.float16))
                bar.update(len(chunk))
        if not places:
            raise ValueError(f"the text has no phrase of 2 to {max_words} words")
        probe = vector_of(parser, PROBE)
        return cls(sentences, np.array(places, np.int32), np.concatenate(vectors), probe, source or {})

    def fits(self, parser: TreeParser) -> bool:
        """Whether the vectors are those of this parser's model, by that of `PROBE`."""
        found = vector_of(parser, PROBE)
        if found.shape != self.probe.shape:
            return False
        now, then = _of_length_1(np.stack([found, self.probe]))
        return np.allclose(now, then, atol=5e-3)

    def nearest(self, vector: np.ndarray, count: int = 10) -> list[Neighbour]:
        """The phrases with the highest cosines, the highest first. Of phrases that overlap, only the best is there.

        Args:
            vector: ``(hidden_size,)``, such as that of `vector_of`.
        """
        [vector] = _of_length_1(np.asarray(vector, np.float32)[None])
        parts = np.array_split(self.vectors, len(self) // 100_000 + 1)  # since float32 takes twice the memory
        cosines = np.concatenate([part.astype(np.float32) @ vector for part in parts])
        found: list[Neighbour] = []
        taken: dict[int, list[tuple[int, int]]] = defaultdict(list)  # of each sentence
        for row in np.argsort(-cosines, kind="stable").tolist():
            if len(found) >= count:
                break
            sentence, first, last = self.places[row].tolist()
            if all(last < i or j < first for i, j in taken[sentence]):
                taken[sentence].append((first, last))
                found.append(self._neighbour(row, float(cosines[row])))
        return found

    def _neighbour(self, row: int, cosine: float) -> Neighbour:
        sentence, first, last = self.places[row].tolist()
        return Neighbour(cosine, self.sentences[sentence].split(" "), (first, last))

    def save(self, path: str | Path) -> None:
        """Write one file, whole or not at all. Raises OSError if it cannot be written."""
        text = np.frombuffer("\n".join(self.sentences).encode(), np.uint8)
        tensors = {"vectors": self.vectors, "places": self.places, "probe": self.probe, "text": text}
        metadata = {"source": json.dumps(self.source), "sha256": _checksum(tensors)}
        with disk_errors(Path(path)):
            write_aside(Path(path), lambda aside: save_file(tensors, aside, metadata))

    @classmethod
    def load(cls, path: str | Path) -> "PhraseIndex":
        """Read the file of `save`. Raises ValueError if it is no such file, or damaged."""
        try:
            with safe_open(path, "numpy") as file:
                tensors = {name: file.get_tensor(name) for name in ("vectors", "places", "probe", "text")}
                metadata = file.metadata() or {}
            if metadata["sha256"] != _checksum(tensors):
                raise ValueError("its checksum is another one")
            source, sentences = json.loads(metadata["source"]), tensors["text"].tobytes().decode().split("\n")
        except (SafetensorError, KeyError, ValueError) as error:
            raise ValueError(f"{path} is no index of phrases, or damaged ({error}); make it again") from error
        return cls(sentences, tensors["places"], tensors["vectors"], tensors["probe"], source)


def vector_of(parser: TreeParser, phrase: str) -> np.ndarray:
    """``(hidden_size,)`` float32: the vector of a phrase. Raises ValueError for what is no text, or has no words."""
    check_text(phrase, "a phrase")
    [spans] = words_of_texts(parser.tokenizer, [phrase])
    if all(are_marks([phrase[start:end] for start, end in spans])):
        raise ValueError(f"{phrase!r} has no words")
    [(words, found)] = _encode(parser, [phrase])
    return found[0, len(words) - 1]


def _encode(parser: TreeParser, texts: Sequence[str]) -> Iterator[tuple[list[str], dict[tuple[int, int], np.ndarray]]]:
    """The words of each text that the model sees, and the vectors of words and constituents."""
    read = parser.read(list(texts))
    for sentence, vectors in zip(read, parser.node_vectors(read), strict=True):
        yield list(sentence.words), vectors


def _checksum(tensors: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(np.ascontiguousarray(tensors[name]).data)
    return digest.hexdigest()


def _of_length_1(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True).clip(min=1e-12)


__all__ = ["LONGEST_PHRASE", "Neighbour", "PhraseIndex", "vector_of"]
