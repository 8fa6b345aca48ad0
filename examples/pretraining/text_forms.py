"""Text as people have it: lines, paragraphs, hard-wrapped books, Wikipedia extracts, CoNLL-U; all become paragraphs."""

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator

import regex

LINES_TO_LOOK_AT = 5000
# Of neighbouring lines, the share in which a sentence goes on in the next line, from which a text is hard-wrapped.
WRAPPED_SHARE, FEWEST_PAIRS = 0.2, 2
SHORTEST_FULL_LINE, FULL = 30, 0.8  # characters, in the median line; its length by that of the longer ones
SHARE_OF_JSON = 0.9  # of lines, from which a file is lines of JSON
SHARE_OF_ROWS = 0.9  # of lines, from which a file is CoNLL-U
TERMINAL = regex.compile(r"[\p{SB=STerm}\p{SB=ATerm}…:;]\W*$")


def paragraphs(lines: Iterable[str], text_column: str = "text", place: str = "the text") -> Iterator[str]:
    """The paragraphs of one file. Its first lines show its form.

    Args:
        lines: without blanks at their ends.
        text_column: the key of the text in lines of JSON.
        place: the file, for messages.

    Raises:
        ValueError: if lines of JSON have no such key, if a file of JSON has other lines, or if CoNLL-U has no text.
    """
    lines = iter(lines)
    first = list(itertools.islice(lines, LINES_TO_LOOK_AT))
    form, every = form_of(first), itertools.chain(first, lines)
    if form != "JSON lines" and place.removesuffix(".gz").endswith((".json", ".jsonl")):
        raise ValueError(f"{place} is not JSON with an object per line; give its folder, which `datasets` reads")
    if form == "JSON lines":
        rows = list(filter(None, map(_json_object, first)))
        if not any(text_column in row for row in rows):
            raise ValueError(f"{place} has no key {text_column!r} but {', '.join(rows[0])}; give --text_column")
        texts = ((_json_object(line) or {}).get(text_column) for line in every)
        return itertools.chain.from_iterable(document_paragraphs(text) for text in texts if isinstance(text, str))
    if form == "CoNLL-U" and not any(re.match(r"# text =", line) for line in first):
        raise ValueError(f"{place} is CoNLL-U without lines `# text = ...`, from which sentences are read")
    return FORMS[form](every)


def document_paragraphs(text: str) -> list[str]:
    """The paragraphs of one document, whose lines may be wrapped."""
    lines = list(map(str.strip, text.splitlines()))
    return list(_unwrapped(lines)) if _is_wrapped(lines) else lines


def form_of(lines: list[str]) -> str:
    """A key of `FORMS`: how the text is laid out."""
    are_rows = [re.match(r"#|\d\S*\t", line) is not None for line in lines if line]
    is_conllu = any(re.match(r"# (sent_id|text) =|1\t([^\t]*\t){8}", line) for line in lines)
    if is_conllu and sum(are_rows) >= SHARE_OF_ROWS * len(are_rows):  # a few may be damaged
        return "CoNLL-U"
    if any(line.startswith("<doc ") for line in lines):
        return "extracts"
    are_json = [_json_object(line) is not None for line in lines if line]
    if are_json and sum(are_json) >= SHARE_OF_JSON * len(are_json):  # a last line may be cut
        return "JSON lines"
    return "wrapped" if _is_wrapped(lines) else "lines"


def _is_wrapped(lines: list[str]) -> bool:
    """Whether lines are full, so that they are about equally long, and sentences go on in the next one."""
    pairs = [(line, following) for line, following in itertools.pairwise(lines) if line and following]
    lengths = sorted(len(line) for line, _ in pairs)
    if not lengths or lengths[len(lengths) // 2] < max(SHORTEST_FULL_LINE, FULL * lengths[len(lengths) * 9 // 10]):
        return False
    widest = lengths[len(lengths) * 9 // 10] / FULL  # a title's neighbour may be longer
    going_on = sum(
        _may_go_on(following) and len(following) <= widest and not TERMINAL.search(line) for line, following in pairs
    )
    return len(pairs) >= FEWEST_PAIRS and going_on > WRAPPED_SHARE * len(pairs)


def _may_go_on(line: str) -> bool:
    """Whether a sentence may go on with this line: with a letter that is no capital one, as most scripts have none."""
    return line[0].isalpha() and not line[0].isupper()


def _json_object(line: str) -> dict | None:
    """The object that a line of JSON is; None for any other line."""
    try:
        return json.loads(line) if line.startswith("{") else None
    except (ValueError, RecursionError):
        return None


def _unwrapped(lines: Iterable[str]) -> Iterator[str]:
    """Lines up to a blank one, joined."""
    for is_text, part in itertools.groupby(lines, bool):
        if is_text:
            yield " ".join(part)


FORMS: dict[str, Callable[[Iterable[str]], Iterator[str]]] = {
    "CoNLL-U": lambda lines: (line.partition("=")[2].strip() for line in lines if re.match(r"# text =", line)),
    "extracts": lambda lines: (line for line in lines if not re.match(r"</?doc\b", line)),
    "wrapped": _unwrapped,
    "lines": iter,
}
