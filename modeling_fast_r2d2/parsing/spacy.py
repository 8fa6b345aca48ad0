"""The spaCy component ``fast_r2d2``: constituents over spaCy's own tokens.

Importing this module registers the component. After ``nlp.add_pipe("fast_r2d2", config={"checkpoint": ...})`` spans and
tokens have the attributes of benepar: ``._.constituents``, ``._.children``, ``._.parent``, ``._.labels`` and
``._.parse_string``. They raise a ValueError if the span is no constituent, or if the document is not parsed.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

try:
    import spacy
except ImportError as error:
    raise ImportError("the spaCy component needs spaCy: pip install 'fast-r2d2[spacy]'") from error
from spacy.tokens import Doc, Span, Token

from ..trees import BinaryTree, escaped
from .pretokenized import parse_tokens
from .tree_parser import TreeParser

# The key of the trees in `Doc.user_data`. They are ``(tokens - 1, 2)`` int32: for each split point of the document, the
# first and last token, inclusive, of the constituent that splits there; -1 between two sentences.
USER_DATA = "fast_r2d2"
LABEL = "X"


class FastR2D2Component:
    """Parses the sentences of documents. An earlier component must set the sentence boundaries.

    Args:
        parser: a parser of words.
    """

    def __init__(self, parser: TreeParser):
        set_extensions()
        self.parser = parser

    def __call__(self, doc: Doc) -> Doc:
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], batch_size: int = 128) -> Iterator[Doc]:
        """Parse documents, ``batch_size`` of them together, and return them in their order."""
        for docs in spacy.util.minibatch(stream, batch_size):
            sentences = [[token.text for token in sentence] for doc in docs for sentence in doc.sents]
            trees = iter(parse_tokens(self.parser, sentences))
            for doc in docs:
                doc.user_data[USER_DATA] = _document_spans(doc, trees)
            yield from docs


DEFAULTS = {"checkpoint": "fast-r2d2-tiny", "method": "parser", "device": "cpu", "batch_tokens": 8192}


@spacy.Language.factory("fast_r2d2", default_config=DEFAULTS, requires=["doc.sents"])
def make_component(
    nlp: spacy.Language, name: str, checkpoint: str, method: str, device: str, batch_tokens: int
) -> FastR2D2Component:
    """Make the component for spaCy; ``checkpoint`` and what follows are arguments of `TreeParser.from_pretrained`."""
    return FastR2D2Component(TreeParser.from_pretrained(checkpoint, method, device, batch_tokens=batch_tokens))


def constituents(span: Span) -> Iterator[Span]:
    """The span and all constituents within it, parents before children and left before right, with single tokens."""
    spans = sorted(_tree(span).constituents(trivial=True), key=lambda found: (found[0], -found[1]))
    return (span[i : j + 1] for i, j in spans)


def children(span: Span) -> Iterator[Span]:
    """The two children of the span; none for a single token."""
    return (half for _, _, k in _tree(span).triples[:1] for half in (span[: k + 1], span[k + 1 :]))


def parent(span: Span) -> Span | None:
    """The constituent that has the span as a child; None for a whole sentence."""
    _tree(span)  # raises if the span is no constituent
    # The parent splits just before or just after the span. The constituent that splits on the other side is wider.
    splits = [k for k in (span.start - 1, span.end - 1) if 0 <= k < len(span.doc) - 1]
    around = [(i, j) for i, j in _spans(span.doc)[splits].tolist() if i >= 0]
    i, j = min(around, key=lambda found: found[1] - found[0], default=(0, -1))
    return span.doc[i : j + 1] if around else None


def labels(span: Span) -> tuple[str, ...]:
    """``("X",)``, since the parser gives constituents no labels; ``()`` for a single token."""
    return (LABEL,) if _tree(span).spans else ()


def parse_string(span: Span) -> str:
    """The tree in brackets: ``(X (X The cat) sat)``, or ``(X (X (DT The) (NN cat)) (VBD sat))`` if tokens have tags."""
    words = [escaped(token.text) for token in span]
    words = [f"({escaped(token.tag_)} {word})" if token.tag_ else word for token, word in zip(span, words, strict=True)]
    brackets = _tree(span).brackets()  # its leaves are the numbers of the tokens
    filled = re.sub(r"\(|\d+", lambda found: f"({LABEL} " if found[0] == "(" else words[int(found[0])], brackets)
    return filled if filled.startswith("(") else f"({LABEL} {filled})"


def _of_token(getter: Callable[[Span], Any], token: Token) -> Any:
    return getter(token.doc[token.i : token.i + 1])


SPAN_GETTERS: dict[str, Callable[[Any], Any]] = {
    getter.__name__: getter for getter in (constituents, children, parent, labels, parse_string)
}
TOKEN_GETTERS: dict[str, Callable[[Any], Any]] = {
    name: partial(_of_token, getter) for name, getter in SPAN_GETTERS.items()
}


def set_extensions() -> None:
    """Add the attributes to spans and tokens. The component does this itself; call it to read parsed documents.

    Raises:
        ValueError: if another package, such as benepar, has already added attributes of these names.
    """
    for kind, getters in ((Span, SPAN_GETTERS), (Token, TOKEN_GETTERS)):
        for name, getter in getters.items():
            if not kind.has_extension(name) or kind.get_extension(name)[2] is not getter:
                kind.set_extension(name, getter=getter)


def _document_spans(doc: Doc, trees: Iterator[BinaryTree]) -> np.ndarray:
    spans = np.full((max(len(doc) - 1, 0), 2), -1, dtype=np.int32)
    for sentence in doc.sents:
        tree_spans = np.array(next(trees).spans, dtype=np.int32).reshape(-1, 2)
        spans[sentence.start : sentence.end - 1] = tree_spans + sentence.start
    return spans


def _spans(doc: Doc) -> np.ndarray:
    spans = doc.user_data.get(USER_DATA)
    if spans is None:
        raise ValueError("the document is not parsed; use nlp.add_pipe('fast_r2d2', config={'checkpoint': ...})")
    if len(spans) != max(len(doc) - 1, 0):
        raise ValueError(f"the document had {len(spans) + 1} tokens when parsed and now has {len(doc)}; parse it again")
    return spans


def _tree(span: Span) -> BinaryTree:
    """The tree over the tokens of a span; a ValueError if the span is no constituent."""
    within = _spans(span.doc)[span.start : max(span.end - 1, span.start)]
    if len(span) != 1 and not (within == (span.start, span.end - 1)).all(axis=1).any():
        raise ValueError(f"tokens {span.start} to {span.end - 1}, {span.text!r:.80}, are no constituent")
    return BinaryTree.from_spans(within - span.start)


__all__ = ["FastR2D2Component", "make_component", "set_extensions"]
