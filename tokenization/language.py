"""What depends on a language: where words are cut, marks and quotes, genitives, names, and where sentences end.

Everything else in this folder is the same for all languages. A new language adds its word cuts to `CUTS` and its
sentence rule to `SENTENCE_RULES`, and changes the marks and the two rules about words, `is_genitive` and `begins_name`,
if they are not its own.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from itertools import pairwise

import regex

UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"  # scripts without blanks
LETTER = rf"[[\p{{L}}\p{{M}}\p{{N}}_]--[{UNSPACED}]]"  # digits count, too

# Where the treebanks of a language cut a word in two. ``word_rule`` in ``tokenizer_config.json`` names the entry.
CUTS = {
    "plain": "(?!)",
    "english": rf"""
        (?=n['’]t\b)(?<=\p{{L}}) | (?=['’](?:s|m|d|re|ve|ll)\b)(?<=[{LETTER}.])
      | (?=not\b)(?<=\bcan) | (?=na\b)(?<=\b(?:gon|wan)) | (?=ta\b)(?<=\bgot) | (?=me\b)(?<=\b(?:gim|lem))
    """,
}

# Words that begin with an apostrophe, where a text has them alone: 's, 'em, '90s.
CLITICS = rf"['’](?i:s|m|d|re|ve|ll|t|n['’]?|em|til|tis|twas|cause|bout|\d\ds?)(?!{LETTER}|['’])"

APOSTROPHES = "'’"
QUOTES = "\"'`´“”„‟‘’‚‛«»‹›"  # a constituent may end on either side of a quote, so quotes give no bounds
SYMBOLS = "%‰&@#*/\\§†‡•·"  # Unicode calls these punctuation; we treat them as words
# How treebanks write brackets.
BRACKETS = {
    "-lrb-": "(",
    "-rrb-": ")",
    "-lcb-": "{",
    "-rcb-": "}",
    "-lsb-": "[",
    "-rsb-": "]",
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


def is_opening(mark: str, num_before: int = 0) -> bool:
    """Whether a mark is an opening bracket or quote, which belongs to the words after it.

    Args:
        num_before: the number of equal marks before it. Opening and closing ``"`` look the same, so they take turns.
    """
    mark = as_character(mark)
    if set(mark) == {'"'}:
        return num_before % 2 == 0
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


def split_wikitext(paragraph: str) -> list[str]:
    """Sentences of a WikiText paragraph, split after each full stop between blanks. Headings give no sentence."""
    if not paragraph.strip() or re.fullmatch(r"\s*=.*=\s*", paragraph):
        return []
    return [sentence.strip() for sentence in re.split(r"(?<=\s\.)\s", f" {paragraph} ") if sentence.strip()]


def split_chinese(paragraph: str) -> list[str]:
    """Sentences of a Chinese paragraph, split after each run of 。！？ and any closing quotes and brackets."""
    sentences = re.findall(r"[^。！？]*(?:[。！？]+[”’」』）》]*|$)", paragraph)
    return [sentence.strip() for sentence in sentences if sentence.strip()]


# The marks that end a sentence in any script, and the quotes and brackets after them.
TERMINALS = r"[\p{SB=STerm}\p{SB=ATerm}…]++"
SENTENCE_END = regex.compile(rf"{TERMINALS}(?:\s+{TERMINALS})*+[\p{{Pe}}\p{{Pf}}\"'’”]*+")
ENDS_WITHOUT_BLANK = frozenset("。！？｡")
# A full stop after such a word may be an abbreviation's: Mr, U.S, z. B, 3.
MAY_BE_ABBREVIATED = regex.compile(r"(?:^|[^\p{L}\p{M}\p{N}])(?:\p{Lu}\p{L}{0,2}|\p{L}|\d{1,2}|\S*\p{L}\.\p{L}+)$")


def split_text(paragraph: str) -> list[str]:
    """Sentences of a paragraph in any script, by Unicode's sentence ends (Standard Annex 29).

    After marks of scripts with blanks there is a blank, and then no small letter. A full stop after a short word with a
    capital letter, a single letter or a number of one or two digits ends no sentence: two sentences that are taken for
    one do less harm than an abbreviation that is taken for the end of one.
    """
    sentences, start = [], 0
    for end in SENTENCE_END.finditer(paragraph):
        if end.end() > start and _ends_sentence(paragraph, end):
            sentences.append(paragraph[start : end.end()].strip())
            start = end.end()
    return [sentence for sentence in [*sentences, paragraph[start:].strip()] if sentence]


def _ends_sentence(paragraph: str, marks: "regex.Match[str]") -> bool:
    if not ENDS_WITHOUT_BLANK.isdisjoint(marks[0]):
        return True
    after = paragraph[marks.end() : marks.end() + 10]
    if not after[:1].isspace() or after.lstrip(" \"'“‘«„¿¡([")[:1].islower():
        return False
    before = paragraph[max(0, marks.start() - 20) : marks.start()].rstrip()
    return marks[0] != "." or not MAY_BE_ABBREVIATED.search(before)


def split_line(line: str) -> list[str]:
    """The whole line as one sentence; a blank line gives none."""
    return [line.strip()] if line.strip() else []


SENTENCE_RULES: dict[str, Callable[[str], list[str]]] = {
    "line": split_line,
    "text": split_text,
    "wikitext": split_wikitext,
    "chinese": split_chinese,
}
