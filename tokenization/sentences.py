"""Where sentences end: in text of any script, in WikiText's paragraphs, or at the end of each line."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable

import regex

from .trees import Span

# The marks that end a sentence in any script, and the quotes and brackets that close after them: ." or . » or .''
TERMINALS = r"[\p{SB=STerm}\p{SB=ATerm}…]++"
CLOSED = r"[\p{Pe}\p{Pf}\p{Cf}\"'’”]"
# In „so.“ and »so.« the last mark is one that opens elsewhere.
CLOSING = rf"(?:{CLOSED}|\p{{Pi}}(?={CLOSED}*+(?:\s|$)))*+(?:\s(?:''|[\p{{Pe}}\p{{Pf}}])(?=\s|$))*+"
SENTENCE_END = regex.compile(rf"{TERMINALS}(?:\s+{TERMINALS})*+{CLOSING}")
ENDS_WITHOUT_BLANK = frozenset("。！？｡．‼⁇⁈⁉။។")
INVISIBLE = "\u200b\u200c\u200d\u200e\u200f\u061c\u2060\ufeff"  # directions, joiners
OPENING = " \n\"'“‘«„¿¡([—–" + INVISIBLE  # between the end of a sentence and the next one's first letter

# What may stand before a full stop that ends no sentence, in any language: initials, U.S, z. B
INITIAL = regex.compile(r"(?V1)[\p{L}--\p{Hangul}]|\S*\p{L}\.\p{L}+")  # a syllable of Korean is a word
# One letter alone may be an initial: that of can't, l'a, AT&T or 20°C is not alone.
LAST_WORD = regex.compile(r"\p{L}['’]\p{Ll}$|[\p{L}\p{N}][&°]\p{L}$|(?:[\p{L}\p{M}\p{N}]|(?<=[\p{L}\p{N}])\.)+$")
LIST_NUMBER = regex.compile(r"(?:^|\n)[^\S\n]*\d{1,2}$")
LONGEST_WORD = 20  # characters of it that are looked at
NUMBER = "0"  # among abbreviations it stands for numbers of one or two digits: German has "am 3. Oktober"
# Without a list of abbreviations: Mr, St, 3
MAY_BE_ABBREVIATED = regex.compile(r"\p{Lu}\p{L}{1,2}|\d{1,2}")

WORD_AND_STOP = regex.compile(
    r"(?<![\p{L}\p{M}\p{N}.'’-])(\p{L}[\p{L}\p{M}]*+|\d{1,2})(?![\p{L}\p{M}\p{N}'’-]|\.[\p{L}\p{N}])(\s?\.(?!\.))?"
)
LONGEST_ABBREVIATION, FEWEST = 6, 5


def split_text(paragraph: str, abbreviations: Collection[str] | None = None) -> list[str]:
    """Sentences of a paragraph in any script (see `sentence_spans`), without blanks at their ends."""
    return [paragraph[start:end] for start, end in sentence_spans(paragraph, abbreviations)]


def sentence_spans(paragraph: str, abbreviations: Collection[str] | None = None) -> list[Span]:
    """Where the sentences of a paragraph are, by Unicode's sentence ends (Standard Annex 29).

    After marks of scripts with blanks there is a blank, and then no small letter, unless the paragraph has no capital.
    A closing quote stays with its sentence. A full stop ends no sentence after a single letter, after what has a full
    stop inside, such as ``U.S``, after an abbreviation, and after a number of a list, at the beginning of a line.

    Args:
        paragraph: line breaks in it are blanks.
        abbreviations: of the text's language, as `find_abbreviations` gives them. Without them, a short word with a
            capital letter and a number of one or two digits count as abbreviations: two sentences that are taken for
            one do less harm than an abbreviation that is taken for the end of one.

    Returns:
        For each sentence its first character and the one after its last, without blanks at its ends.
    """
    has_capitals = not paragraph.islower()
    spans, start = [], 0
    for end in SENTENCE_END.finditer(paragraph):
        if end.end() > start and _ends_sentence(paragraph, end, has_capitals, abbreviations):
            spans.append((start, end.end()))
            start = end.end()
    stripped = (_without_blanks(paragraph, *span) for span in [*spans, (start, len(paragraph))])
    return [(start, end) for start, end in stripped if end > start]


def _ends_sentence(
    paragraph: str, marks: "regex.Match[str]", has_capitals: bool, abbreviations: Collection[str] | None
) -> bool:
    after = paragraph[marks.end() : marks.end() + 10]
    if not ENDS_WITHOUT_BLANK.isdisjoint(marks[0]):
        return not (marks[0] == "．" and after[:1].isdigit())
    begin = after.lstrip(OPENING)[:1]
    is_small = begin.islower() and begin != begin.title()  # Georgian letters have no capitals at a sentence's begin
    if not after[:1].isspace() or has_capitals and is_small:
        return False
    if marks[0] != ".":
        return True
    start = max(0, marks.start() - LONGEST_WORD)
    before = LAST_WORD.search(paragraph[start : marks.start()].rstrip())
    is_listed = LIST_NUMBER.search(paragraph, start, marks.start())
    return not is_listed and (before is None or not _is_abbreviation(before[0], begin.isdigit(), abbreviations))


def _is_abbreviation(word: str, before_number: bool, abbreviations: Collection[str] | None) -> bool:
    if INITIAL.fullmatch(word) or abbreviations is not None and _entry(word) in abbreviations:
        return True  # No. 1, Jan. 5: before a number they may be any short word
    return (abbreviations is None or before_number) and MAY_BE_ABBREVIATED.fullmatch(word) is not None


def _entry(word: str) -> str:
    """How a list of abbreviations has a word."""
    return NUMBER if word.isdigit() and len(word) < 3 else word.lower()


def _without_blanks(text: str, start: int, end: int) -> Span:
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())


def find_abbreviations(paragraphs: Iterable[str]) -> list[str]:
    """The abbreviations of a language, as its raw text shows them: short words that, written so, mostly have a full
    stop, and not at the end. No single letters: they may always be abbreviations.

    Args:
        paragraphs: raw text, with one or more sentences each.

    Returns:
        Words in lower case without their full stop, sorted. ``"0"`` stands for numbers of one or two digits.
    """
    alone, with_stop, inside = Counter[str](), Counter[str](), Counter[str]()  # "Co." is none of "co" and "CO"
    stops = Counter[str]()  # of all forms of a word
    for paragraph in paragraphs:
        for found in WORD_AND_STOP.finditer(paragraph):
            word = NUMBER if found[1].isdigit() else found[1]
            counts = with_stop if found[2] else alone
            counts[word] += 1
            if found[2] and any(map(str.isalnum, paragraph[found.end() : found.end() + 20])):
                inside[word] += 1
    for word, number in with_stop.items():
        stops[word.lower()] += number
    return sorted(
        word.lower() for word, number in with_stop.items()
        if (1 < len(word) <= LONGEST_ABBREVIATION or word == NUMBER) and number >= FEWEST
        and number > alone[word] and inside[word] >= number / 2 and number > stops[word.lower()] / 2
    )  # fmt: skip


def split_line(line: str) -> list[str]:
    """The whole line as one sentence; a blank line gives none."""
    return [line.strip()] if line.strip() else []


def split_wikitext(paragraph: str) -> list[str]:
    """Sentences of a WikiText paragraph, split after each full stop between blanks. Headings give no sentence."""
    if not paragraph.strip() or re.fullmatch(r"\s*=.*=\s*", paragraph):
        return []
    return [sentence.strip() for sentence in re.split(r"(?<=\s\.)\s", f" {paragraph} ") if sentence.strip()]


SENTENCE_RULES: dict[str, Callable[[str], list[str]]] = {
    "line": split_line,
    "text": split_text,
    "wikitext": split_wikitext,
}
