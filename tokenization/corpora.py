"""Raw text: WikiText's mark-up, and rules that split paragraphs into sentences."""

import re
from collections.abc import Callable

JOINERS = {" @-@ ": "-", " @,@ ": ",", " @.@ ": "."}


def clean_wikitext(line: str, unk_token: str = "[UNK]") -> str:
    """Undo WikiText's mark-up: `` @-@ `` becomes ``-`` again, and ``<unk>`` becomes ``unk_token``."""
    for mark, character in JOINERS.items():
        line = line.replace(mark, character)
    return line.replace("<unk>", unk_token)


def split_wikitext(paragraph: str) -> list[str]:
    """Sentences of a WikiText paragraph, split after each full stop between blanks. Headings give no sentence."""
    if not paragraph.strip() or re.fullmatch(r"\s*=.*=\s*", paragraph):
        return []
    return [sentence.strip() for sentence in re.split(r"(?<=\s\.)\s", f" {paragraph} ") if sentence.strip()]


def split_chinese(paragraph: str) -> list[str]:
    """Sentences of a Chinese paragraph, split after each run of 。！？ and any closing quotes and brackets."""
    sentences = re.findall(r"[^。！？]*(?:[。！？]+[”’」』）》]*|$)", paragraph)
    return [sentence.strip() for sentence in sentences if sentence.strip()]


def split_line(line: str) -> list[str]:
    """The whole line as one sentence; a blank line gives none."""
    return [line.strip()] if line.strip() else []


SENTENCE_RULES: dict[str, Callable[[str], list[str]]] = {
    "line": split_line,
    "wikitext": split_wikitext,
    "chinese": split_chinese,
}
