"""The spaCy component ``fast_r2d2``: constituents over spaCy's own tokens.

Where this package is installed, spaCy knows the component: ``nlp.add_pipe("fast_r2d2")`` needs no import. Afterwards
spans and tokens have the attributes of benepar: ``._.constituents``, ``._.children``, ``._.parent``, ``._.labels`` and
``._.parse_string``. They raise a ValueError if the span is no constituent, or if the document is not parsed. Whitespace
tokens are no leaves: a span counts without those at its ends, and whitespace alone has no constituents.

``._.confidence`` is how sure the parser is of a constituent. With ``config={"vectors": True}`` spans, tokens and
documents also have ``._.vector``.
"""

import io
import multiprocessing
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary
from zipfile import ZipFile

import numpy as np
import torch

try:
    import spacy
except ImportError as error:
    raise ImportError("the spaCy component needs spaCy: pip install 'fast-r2d2[spacy]'") from error
from spacy.attrs import IDX, IS_SPACE
from spacy.tokens import Doc, Span, Token

import fast_r2d2_entry_points.spacy  # noqa: F401  # makes the component known where entry points are not installed
from tokenization_fast_r2d2.tree_shape import escaped
from tokenization_fast_r2d2.trees import BinaryTree

from ..parsing_pipeline import check_method
from .pretokenized import TokenTree, parse_tokens, token_vectors
from .tree_parser import TreeParser

# In `Doc.user_data` the keys are ``("._.", name, first character, None)``, which spaCy moves when it cuts a document or
# joins several. The value for trees is ``(leaves, 3)`` int32, a row for each token that is not whitespace: its first
# character, and the first and last leaf of the constituent that splits after it; -1 at sentence ends. The value for
# vectors is ``(leaves, 2, hidden_size)``, see `token_vectors`, and that for confidences ``(leaves,)`` float32.
TREES, CONFIDENCES, VECTORS = NAMES = ("fast_r2d2", "fast_r2d2_confidences", "fast_r2d2_vectors")
LABEL = "X"


class FastR2D2Component:
    """Parses the sentences of documents. An earlier component must set the sentence boundaries.

    Args:
        parser: a parser of words, or a function that loads it at first use, given a ``checkpoint`` or its default.
        vectors: also keep the vectors of constituents, which `from_options` makes sure the parser can compute.
    """

    def __init__(self, parser: TreeParser | Callable[..., TreeParser], vectors: bool = False):
        set_extensions()
        self._parser: TreeParser | None = parser if isinstance(parser, TreeParser) else None
        self._load = TreeParser.from_pretrained if isinstance(parser, TreeParser) else parser
        self.vectors = vectors

    @classmethod
    def from_options(cls, options: dict[str, Any], vectors: bool) -> "FastR2D2Component":
        """A component whose parser is loaded at first use.

        Args:
            options: arguments of `TreeParser.from_pretrained`, with ``method``.

        Raises:
            ValueError: for an unknown method, and for vectors with another method than ``"parser"``.
        """
        method = check_method(options["method"])
        if vectors and method != "parser":
            raise ValueError(f"vectors are those along the parser's trees; use method='parser', got {method!r}")
        return cls(partial(TreeParser.from_pretrained, **options, with_vectors=vectors), vectors)

    @property
    def parser(self) -> TreeParser:
        if self._parser is None:
            self._parser = self._trees_alone(self._load())
        return self._parser

    def __call__(self, doc: Doc) -> Doc:
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], batch_size: int = 128) -> Iterator[Doc]:
        """Parse documents, ``batch_size`` of them together, and return them in their order."""
        if multiprocessing.parent_process() is not None:
            torch.set_num_threads(1)  # a forked process has no threads of its parent's pool, and would wait for them
        for docs in spacy.util.minibatch(stream, batch_size):
            sentences = [words for doc in docs for words in _sentences(doc)]
            trees = parse_tokens(self.parser, sentences)
            vectors = token_vectors(self.parser, sentences, trees) if self.vectors else None
            trees_left = iter(trees)
            for doc in docs:
                self._annotate(doc, trees_left, vectors)
            yield from docs

    def to_disk(self, path: str | Path, exclude: Iterable[str] = ()) -> None:
        """Save the model and its tokenizer, as `nlp.to_disk` asks."""
        self.parser.model.save_pretrained(path)
        self.parser.tokenizer.save_pretrained(path)

    def from_disk(self, path: str | Path, exclude: Iterable[str] = ()) -> "FastR2D2Component":
        """Load what `to_disk` saved. A pipeline of an older version has nothing there, and loads its checkpoint."""
        if (Path(path) / "config.json").is_file():
            self._parser = self._trees_alone(self._load(checkpoint=str(path)))
        return self

    def to_bytes(self, exclude: Iterable[str] = ()) -> bytes:
        """What `to_disk` saves, as `nlp.to_bytes` asks."""
        archive = io.BytesIO()
        with TemporaryDirectory() as folder, ZipFile(archive, "w") as files:
            self.to_disk(folder)
            for path in sorted(Path(folder).rglob("*")):
                files.write(path, path.relative_to(folder))
        return archive.getvalue()

    def from_bytes(self, data: bytes, exclude: Iterable[str] = ()) -> "FastR2D2Component":
        """Load what `to_bytes` gave."""
        with TemporaryDirectory() as folder, ZipFile(io.BytesIO(data)) as files:
            files.extractall(folder)
            return self.from_disk(folder)

    @staticmethod
    def _trees_alone(parser: TreeParser) -> TreeParser:
        parser.with_vectors = False  # `token_vectors` encodes, once the trees are there
        return parser

    def _annotate(self, doc: Doc, trees: Iterator[TokenTree], vectors: Iterator[np.ndarray] | None) -> None:
        lengths = [len(words) for words in _sentences(doc)]
        rows = np.full((sum(lengths), 3), -1, dtype=np.int32)
        rows[:, 0] = doc.to_array(IDX)[_visible(doc)]
        sure = np.ones(len(rows), np.float32)
        start = 0
        for length in lengths:
            tree, confidences = next(trees)
            rows[start : start + length - 1, 1:] = np.array(tree.spans, dtype=np.int32).reshape(-1, 2) + start
            sure[start : start + length - 1] = confidences
            start += length
        data = _data(doc)
        for key in [key for key in data if isinstance(key, tuple) and key[:2] in [_key(name)[:2] for name in NAMES]]:
            del data[key]
        data[_key(TREES)], data[_key(CONFIDENCES)] = rows, sure
        _READ.pop(doc, None)
        if vectors is not None and lengths:
            data[_key(VECTORS)] = np.concatenate([next(vectors) for _ in lengths])


def constituents(span: Span) -> Iterator[Span]:
    """The span and all constituents within it, parents before children and left before right, with single tokens."""
    node = _node(span)
    if not node.tokens.size:
        return iter(())
    spans = sorted(node.tree.constituents(trivial=True), key=lambda found: (found[0], -found[1]))
    return (node.slice(span.doc, i, j) for i, j in spans)


def children(span: Span) -> Iterator[Span]:
    """The two children of the span; none for a single token."""
    node = _node(span)
    bounds = [half for i, j, k in node.tree.triples[:1] for half in ((i, k), (k + 1, j))]
    return (node.slice(span.doc, i, j) for i, j in bounds)


def parent(span: Span) -> Span | None:
    """The constituent that has the span as a child; None for a whole sentence."""
    node = _node(span)
    first, last = node.first, node.first + len(node.tokens) - 1
    # The parent splits just before or just after the span. The constituent that splits on the other side is wider.
    splits = [k for k in (first - 1, last) if node.tokens.size and 0 <= k < len(node.parse.spans)]
    around = [(i, j) for i, j in node.parse.spans[splits].tolist() if i >= 0]
    i, j = min(around, key=lambda found: found[1] - found[0], default=(0, -1))
    return node.slice(span.doc, i - first, j - first) if around else None


def labels(span: Span) -> tuple[str, ...]:
    """``("X",)``, since the parser gives constituents no labels; ``()`` for a single token."""
    return (LABEL,) if _node(span).tree.spans else ()


def parse_string(span: Span) -> str:
    """The tree in brackets: ``(X (X The cat) sat)``, or ``(X (X (DT The) (NN cat)) (VBD sat))`` if tokens have tags."""
    node = _node(span)
    tokens = [span.doc[token] for token in node.tokens.tolist()]
    words = [escaped(token.text) for token in tokens]
    words = [
        f"({escaped(token.tag_)} {word})" if token.tag_ else word for token, word in zip(tokens, words, strict=True)
    ]
    brackets = node.tree.brackets() if words else ""  # its leaves are the numbers of the tokens
    filled = re.sub(r"\(|\d+", lambda found: f"({LABEL} " if found[0] == "(" else words[int(found[0])], brackets)
    return filled if filled.startswith("(") or not words else f"({LABEL} {filled})"


def confidence(span: Span) -> float:
    """The probability that the span is a constituent, from 0 to 1 (see `ParsedSentence.confidences`); 1 for a token."""
    node, data = _node(span), _data(span.doc)
    for start, here, there in node.parse.parts:
        if node.tree.spans and here.start <= node.first < here.stop:
            leaf = there.start + node.first - here.start + node.tree.triples[0][2]
            return float(data[_key(CONFIDENCES, start)][leaf])
    return 1.0


def vector(span: Span) -> np.ndarray:
    """``(hidden_size,)`` float32, the constituent's vector; zeros for what the model does not see, such as punctuation
    that was set aside. Raises ValueError without ``config={"vectors": True}``, and for whitespace."""
    node, data = _node(span), _data(span.doc)
    for start, here, there in node.parse.parts:
        if node.tokens.size and here.start <= node.first < here.stop and _key(VECTORS, start) in data:
            column, leaf = (1, node.tree.triples[0][2]) if node.tree.spans else (0, 0)
            return data[_key(VECTORS, start)][there.start + node.first - here.start + leaf, column]
    raise ValueError("no vector here; use nlp.add_pipe('fast_r2d2', config={'vectors': True}); whitespace has none")


def document_vector(doc: Doc) -> np.ndarray:
    """``(hidden_size,)`` float32, the mean of the vectors of its sentences. Raises ValueError for a document without
    words."""
    if not (found := [vector(sentence) for sentence in doc.sents if _node(sentence).tokens.size]):
        raise ValueError("a document without words has no vector")
    return np.mean(found, axis=0)


def _of_token(getter: Callable[[Span], Any], token: Token) -> Any:
    return getter(token.doc[token.i : token.i + 1])


SPAN_GETTERS: dict[str, Callable[[Any], Any]] = {
    getter.__name__: getter for getter in (constituents, children, parent, labels, parse_string, confidence, vector)
}
TOKEN_GETTERS: dict[str, Callable[[Any], Any]] = {
    name: partial(_of_token, getter) for name, getter in SPAN_GETTERS.items()
}
DOCUMENT_GETTERS: dict[str, Callable[[Any], Any]] = {"vector": document_vector}


def set_extensions() -> None:
    """Add the attributes to spans, tokens and documents. The component does this itself; call it to read parsed
    documents.

    Raises:
        ValueError: if another package, such as benepar, has already added attributes of these names.
    """
    for kind, getters in ((Span, SPAN_GETTERS), (Token, TOKEN_GETTERS), (Doc, DOCUMENT_GETTERS)):
        for name, getter in getters.items():
            if not kind.has_extension(name) or kind.get_extension(name)[2] is not getter:
                kind.set_extension(name, getter=getter)


def _visible(doc: Doc) -> np.ndarray:
    """Which tokens are not whitespace, ``(tokens,)`` bool."""
    return doc.to_array(IS_SPACE) == 0


def _sentences(doc: Doc) -> list[list[str]]:
    """The words of the sentences that are not whitespace alone."""
    found = ([token.text for token in sentence if not token.is_space] for sentence in doc.sents)
    return [words for words in found if words]


class Parse(NamedTuple):
    """The trees of a document.

    Attributes:
        tokens: the tokens that are leaves.
        characters: the first character of each.
        spans: ``(leaves - 1, 2)``, first and last leaf of the constituent that splits after each leaf, or -1.
        parts: as of `_parts`.
    """

    tokens: np.ndarray
    characters: np.ndarray
    spans: np.ndarray
    parts: list[tuple[int, slice, slice]]


# Of documents that were asked, with what tells that they have changed: reading a long one for each span takes minutes.
_READ: WeakKeyDictionary[Doc, tuple[tuple[int, int, int], Parse]] = WeakKeyDictionary()


class Node(NamedTuple):
    """A constituent, a token or nothing. ``first``: its first leaf; ``tokens``: those of its leaves."""

    parse: Parse
    first: int
    tokens: np.ndarray
    tree: BinaryTree

    def slice(self, doc: Doc, first: int, last: int) -> Span:
        """The span of these leaves, counted from the node's first."""
        return doc[self.parse.tokens[self.first + first] : self.parse.tokens[self.first + last] + 1]


def _node(span: Span) -> Node:
    """What stands at a span, without the whitespace at its ends; a ValueError if it is no constituent."""
    parse = _parse(span.doc)
    first, end = np.searchsorted(parse.tokens, (span.start, span.end)).tolist()
    characters = [token.idx for token in span if not token.is_space]
    if parse.characters[first:end].tolist() != characters:  # another token was cut, and others joined
        del _READ[span.doc]
        return _node(span)
    within = parse.spans[first : max(end - 1, first)]
    if (end - first > 1 and not (within == (first, end - 1)).all(axis=1).any()) or span.start == span.end:
        raise ValueError(f"tokens {span.start} to {span.end - 1}, {span.text!r:.80}, are no constituent")
    return Node(parse, first, parse.tokens[first:end], BinaryTree.from_spans(within - first))


def _parse(doc: Doc) -> Parse:
    data = _data(doc)
    state, (known_state, parse) = (len(doc), id(data), len(data)), _READ.get(doc, (None, None))
    if parse is None or state != known_state:
        parse = _read(doc)
        _READ[doc] = state, parse
    return parse


def _read(doc: Doc) -> Parse:
    data = _data(doc)
    trees = {key: data[key] for key in data if isinstance(key, tuple) and key[:2] == _key(TREES)[:2]}
    tokens = np.flatnonzero(_visible(doc))
    characters = doc.to_array(IDX)[tokens].astype(np.int64)
    parts = list(_parts(characters, trees))
    if not parts:
        raise ValueError("the document is not parsed; use nlp.add_pipe('fast_r2d2', config={'checkpoint': ...})")
    if sum(here.stop - here.start for _, here, _ in parts) != len(tokens):
        raise ValueError("the document has other tokens now than when it was parsed; parse it again")
    spans = np.full((max(len(tokens) - 1, 0), 2), -1)
    for start, here, there in parts:
        moved = trees[_key(TREES, start)][there][:-1, 1:] + here.start - there.start
        is_whole = ((moved >= here.start) & (moved < here.stop)).all(axis=1)  # no sentence end, and not cut off
        spans[here.start : max(here.stop - 1, here.start)] = np.where(is_whole[:, None], moved, -1)
    return Parse(tokens, characters, spans, parts)


def _parts(characters: np.ndarray, trees: dict[tuple, np.ndarray]) -> Iterator[tuple[int, slice, slice]]:
    """Where the parsed documents lie that this one is, is a part of, or was joined from: the first character, the
    leaves in this document, and the same leaves in the parsed one."""
    for (*_, start, _), rows in trees.items():
        _, here, there = np.intersect1d(characters, rows[:, 0] + start, return_indices=True)
        is_run = len(here) > 0 and np.ptp(here) == np.ptp(there) == len(here) - 1
        runs = (slice(places[0], places[-1] + 1) if is_run else slice(0, 0) for places in (here, there))
        yield start, *runs


def _data(doc: Doc) -> Any:
    """`Doc.user_data`, whose keys may be tuples."""
    return doc.user_data


def _key(name: str, start: int = 0) -> tuple[str, str, int, None]:
    return "._.", name, start, None


__all__ = ["FastR2D2Component", "set_extensions"]
