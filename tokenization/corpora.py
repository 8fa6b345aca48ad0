"""Raw text: WikiText's mark-up, and rules that cut paragraphs into sentences."""

import re
from collections.abc import Callable

JOINERS = {" @-@ ": "-", " @,@ ": ",", " @.@ ": "."}


def clean_wikitext(line: str, unk_token: str = "[UNK]") -> str:
    """Undo WikiText's mark-up: `` @-@ `` and the like join their neighbours, ``<unk>`` is the unknown token."""
    for mark, character in JOINERS.items():
        line = line.replace(mark, character)
    return line.replace("<unk>", unk_token)


def split_wikitext(paragraph: str) -> list[str]:
    """Sentences of a WikiText paragraph: cut after every full stop that stands between blanks; headings have none."""
    if not paragraph.strip() or re.fullmatch(r"\s*=.*=\s*", paragraph):
        return []
    return [sentence.strip() for sentence in re.split(r"(?<=\s\.)\s", f" {paragraph} ") if sentence.strip()]


def split_chinese(paragraph: str) -> list[str]:
    """Sentences of a Chinese paragraph: cut after runs of 。！？ and the closing quotes and brackets that follow."""
    sentences = re.findall(r"[^。！？]*(?:[。！？]+[”’」』）》]*|$)", paragraph)
    return [sentence.strip() for sentence in sentences if sentence.strip()]


def split_line(line: str) -> list[str]:
    """The line itself as the only sentence, or none if it is blank."""
    return [line.strip()] if line.strip() else []


SENTENCE_RULES: dict[str, Callable[[str], list[str]]] = {
    "line": split_line,
    "wikitext": split_wikitext,
    "chinese": split_chinese,
}
