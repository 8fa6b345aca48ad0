"""What depends on a language: where words are cut, marks and quotes, genitives, names.

Everything else in this folder is the same for all languages. A new language adds its word cuts to `CUTS`, and changes
the marks and the two rules about words, `is_genitive` and `begins_name`, if they are not its own.
"""

import unicodedata
from collections.abc import Sequence
from itertools import pairwise

# Scripts without blanks. Numbers in the digits of Thai or Burmese are words like other numbers.
UNSPACED = r"[[\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]--\p{Nd}]"
CHARACTER = r".\p{M}*"  # with its accents, vowel signs and tones
LETTER = rf"[[\p{{L}}\p{{M}}\p{{N}}_]--[{UNSPACED}]]"  # digits count, too

# Where the treebanks of a language cut a word in two. ``word_rule`` in ``tokenizer_config.json`` names the entry.
CUTS = {
    "plain": "(?!)",
    "english": rf"""
        (?=['’mnt])  # for speed: how all of these begin
        (?: (?=n['’]t\b)(?<=\p{{L}}) | (?=['’](?:s|m|d|re|ve|ll)\b)(?<=[{LETTER}.])
          | (?=not\b)(?<=\bcan) | (?=na\b)(?<=\b(?:gon|wan)) | (?=ta\b)(?<=\bgot) | (?=me\b)(?<=\b(?:gim|lem)) )
    """,
}

# Words that begin with an apostrophe, where a text has them alone: 's, 'em, '90s.
CLITICS = rf"['’](?i:s|m|d|re|ve|ll|t|n['’]?|em|til|tis|twas|cause|bout|\d\ds?)(?!{LETTER}|['’])"

APOSTROPHES = "'’"
QUOTES = "\"'`´“”„‟‘’‚‛«»‹›"  # a constituent may end on either side of a quote, so quotes give no bounds
COMMAS = ",،、，"  # these may stand in a list (see `coordination`)
SYMBOLS = "%‰&@#*/\\§†‡•·％＆＠＃＊／＼٪؉"  # Unicode calls these punctuation; we treat them as words
SINGLE_QUOTES = "'`´‘’‚‛‹›"
TURNED = {"“": "„", "‘": "‚", "«": "»", "‹": "›"}  # quotes that close, not open, where the other one has opened
# How treebanks write brackets.
BRACKETS = {
    "-lrb-": "(",
    "-rrb-": ")",
    "-lcb-": "{",
    "-rcb-": "}",
    "-lsb-": "[",
    "-rsb-": "]",
    "-fpa-": "(",  # in CESS
    "-fpt-": ")",
}


def are_marks(words: Sequence[str]) -> list[bool]:
    """Whether each word of a sentence is a punctuation mark. The apostrophe of a genitive is none."""
    return [
        is_punctuation(as_character(word)) and not is_genitive(word, before)
        for before, word in pairwise(["", *words])
    ]  # fmt: skip


def is_punctuation(piece: str) -> bool:
    """Whether a piece is nothing but punctuation. Symbols such as ``%`` and ``&`` are not punctuation."""
    if not piece or piece[0].isalnum():  # nearly all words: this saves time
        return False
    return all(
        unicodedata.category(character)[0] == "P" and character not in SYMBOLS or character in QUOTES
        for character in piece
    )


def are_opening(marks: Sequence[str]) -> list[bool]:
    """Whether each mark of a sentence is an opening bracket or quote, which belongs to the words after it.

    Opening and closing ``"`` look the same, so they take turns. In ``„so“`` and ``»so«`` the last mark closes.
    """
    marks = [as_character(mark) for mark in marks]
    return [_is_opening(mark, marks[:number], marks[number + 1 :]) for number, mark in enumerate(marks)]


def pairs_of(marks: Sequence[str], opens: Sequence[bool]) -> list[tuple[int, int]]:
    """The brackets and quotes of a sentence that open and close the same passage, as the numbers of two marks.

    Passages may lie within one another, and do not cross. Brackets of all shapes count as the same.

    Args:
        opens: what `are_opening` says of the marks.
    """
    opened: list[tuple[str, int]] = []
    pairs = []
    for number, (mark, is_opening) in enumerate(zip(marks, opens, strict=True)):
        kind = _kind(as_character(mark))
        if is_opening:
            opened.append((kind, number))
        elif any(kind == other for other, _ in opened):
            while opened[-1][0] != kind:
                opened.pop()
            pairs.append((opened.pop()[1], number))
    return pairs


def _kind(mark: str) -> str:
    if is_quote(mark):
        return "single" if mark in SINGLE_QUOTES else "double"
    return "bracket" if unicodedata.category(mark[0]) in ("Ps", "Pe") else "other"


def _is_opening(mark: str, before: list[str], after: list[str]) -> bool:
    if set(mark) == {'"'}:
        return before.count(mark) % 2 == 0
    if mark in TURNED and before.count(TURNED[mark]) > before.count(mark):
        return False
    if mark in "»›":
        closing = "«" if mark == "»" else "‹"
        follows = next((other for other in after if other in (mark, closing)), None)
        return follows == closing and before.count(closing) <= before.count(mark)
    return mark[0] == "`" or unicodedata.category(mark[0]) in ("Ps", "Pi")


def is_genitive(piece: str, before: str) -> bool:
    """Whether a piece is the apostrophe of a genitive, as in ``the cats' tails``.

    Args:
        before: the text before the piece, without blanks at its end.
    """
    return piece in APOSTROPHES and before[-1:] in ("s", "S")


def is_quote(mark: str) -> bool:
    """Whether a mark is nothing but quotes."""
    return all(character in QUOTES for character in mark)


def as_character(word: str) -> str:
    """The bracket that a treebank's word stands for: ``(`` for ``-LRB-``. Other words are returned unchanged."""
    return BRACKETS.get(word.lower(), word)


def begins_name(word: str) -> bool:
    """Whether a word may begin or go on a name, which here is a capital letter (see `ReadSentence.names`)."""
    return word[:1].isupper()


JOINERS = {" @-@ ": "-", " @,@ ": ",", " @.@ ": "."}


def clean_wikitext(line: str, unk_token: str = "[UNK]") -> str:
    """Undo WikiText's mark-up: `` @-@ `` becomes ``-`` again, and ``<unk>`` becomes ``unk_token``."""
    for mark, character in JOINERS.items():
        line = line.replace(mark, character)
    return line.replace("<unk>", unk_token)
