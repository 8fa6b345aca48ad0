"""Text as people have it: lines, paragraphs, hard-wrapped books, Wikipedia extracts, CoNLL-U; all become paragraphs."""

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator

import regex

LINES_TO_LOOK_AT = 5000
# Of neighbouring lines, the share in which a sentence goes on in the next line, from which a text is hard-wrapped.
WRAPPED_SHARE = 0.2
SHORTEST_FULL_LINE, FULL = 30, 0.8  # characters, in the median line; its length by that of the longer ones
TERMINAL = regex.compile(r"[\p{SB=STerm}\p{SB=ATerm}…:;]\W*$")


def paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """The paragraphs of one file. Its first lines show its form.

    Args:
        lines: without blanks at their ends.
    """
    lines = iter(lines)
    first = list(itertools.islice(lines, LINES_TO_LOOK_AT))
    return FORMS[form_of(first)](itertools.chain(first, lines))


def form_of(lines: list[str]) -> str:
    """A key of `FORMS`: how the text is laid out."""
    has_text = any(re.match(r"# (sent_id|text) =", line) for line in lines)
    if has_text and all(re.match(r"#|\d\S*\t", line) for line in lines if line):
        return "CoNLL-U"
    if any(line.startswith("<doc ") for line in lines):
        return "extracts"
    if any(lines) and all(_text_of_json(line) is not None for line in lines if line):
        return "JSON lines"
    return "wrapped" if _is_wrapped(lines) else "lines"


def _is_wrapped(lines: list[str]) -> bool:
    """Whether lines are full, so that they are about equally long, and sentences go on in the next one."""
    pairs = [(line, following) for line, following in itertools.pairwise(lines) if line and following]
    lengths = sorted(len(line) for line, _ in pairs)
    if not lengths or lengths[len(lengths) // 2] < max(SHORTEST_FULL_LINE, FULL * lengths[len(lengths) * 9 // 10]):
        return False
    going_on = sum(following[0].islower() and not TERMINAL.search(line) for line, following in pairs)
    return going_on > WRAPPED_SHARE * len(pairs)


def _text_of_json(line: str) -> str | None:
    """The ``text`` of a line of JSON; None for any other line."""
    try:
        row = json.loads(line) if line.startswith("{") else None
    except (ValueError, RecursionError):
        return None
    text = row.get("text") if isinstance(row, dict) else None
    return text if isinstance(text, str) else None


def _from_conllu(lines: Iterable[str]) -> Iterator[str]:
    return (line.partition("=")[2].strip() for line in lines if re.match(r"# text =", line))


def _from_extracts(lines: Iterable[str]) -> Iterator[str]:
    return (line for line in lines if not re.match(r"</?doc\b", line))


def _from_json(lines: Iterable[str]) -> Iterator[str]:
    return (part for line in lines for part in (_text_of_json(line) or "").splitlines())


def _unwrapped(lines: Iterable[str]) -> Iterator[str]:
    """Lines up to a blank one, joined."""
    for is_text, part in itertools.groupby(lines, bool):
        if is_text:
            yield " ".join(part)


FORMS: dict[str, Callable[[Iterable[str]], Iterator[str]]] = {
    "CoNLL-U": _from_conllu,
    "extracts": _from_extracts,
    "JSON lines": _from_json,
    "wrapped": _unwrapped,
    "lines": iter,
}
