"""Word rules: where the words and the marks of a text are, as the treebanks have them that models are judged by.

Marks are words of their own, and so are ``$`` and ``%``. What belongs together stays whole: ``well-known``, ``AT&T``,
``C++``, ``Mr.``, ``1,234.56``, URLs, e-mail addresses, emoji. A word keeps its full stop if more words follow: a text
is one sentence here, so it is an abbreviation's.

``word_rule`` in a checkpoint's ``tokenizer_config.json`` names a rule; without it the rule is ``"plain"``. What a
language adds is an entry of `CUTS`: where its treebanks cut a word in two.
"""

from bisect import bisect_left, bisect_right
from functools import cache
from itertools import pairwise

import regex  # transformers needs it, so it is there wherever this file is carried to

from .language import CLITICS, CUTS, LETTER, UNSPACED
from .trees import Span

LETTERS = rf"{LETTER}[[\p{{L}}\p{{M}}\p{{N}}\p{{Cf}}_]--[{UNSPACED}]]*+"  # Cf: soft hyphens and their like

NAME, DOMAIN = (rf"[[\p{{L}}\p{{N}}{more}-]--[{UNSPACED}]]" for more in ("_+%", ""))  # of an address
ADDRESS = rf"""
    {NAME}{{1,64}}+ (?:\.{NAME}{{1,64}}+){{0,9}}+
    (?: @ {DOMAIN}{{1,63}} (?:\.{DOMAIN}{{1,63}}){{1,9}}
      | (?: :// | (?<=\bwww\.[\p{{L}}\p{{N}}.-]{{1,60}}) | (?<=\.[a-z]{{2,9}})/ )
        (?: [^\s\p{{C}}<>()"'“”‘’„«»`{UNSPACED}] | \([^\s(){UNSPACED}]{{0,99}}\) )*
        (?<= [{LETTER}/=&\#%~+)-] )
    )
"""
WORD = rf"""
    (?: (?<![{LETTER}.)\]])[-+−]?\.?(?=\d) | [@\#](?=\p{{L}}) )?                           # -5, .5, @name
    {LETTERS}
    (?: (?: [.%]?(?:[-‐‑–&＆@*:·་׳״־՛՜՞'’`]|(?<=[oOgG])‘|\\?/) | \. | (?<=\d)[,٫٬](?=\d) | (?<=[０-９])[．，](?=[０-９])
        | (?<=\p{{Hebrew}})"(?=\p{{Hebrew}}) ) {LETTERS} )*+                                  # within a word
    (?: (?<=\p{{Hebrew}})['’׳] )?                                                           # a geresh
    (?: (?<=\p{{L}})\+{{1,2}}(?![{LETTER}+]) | (?<=\b\p{{Lu}})\#(?!{LETTER}) )?            # C++, C#
    (?: \.(?![.{UNSPACED}]) (?: (?<=\b\p{{L}}\.\p{{L}}\.)                                   # U.S., at the end, too
        | (?=[^\p{{L}}\p{{N}}]*[\p{{L}}\p{{N}}]|\s+\.) ) )?                                  # Mr.
"""
TOKEN = rf"""
    {ADDRESS}
  | (?i:-[lr][rcs]b-)                                                                       # a treebank's brackets
  | {CLITICS}
  | \p{{Lu}}{{1,3}}\$(?=[\d.])                                                              # US$
  | (?P<unspaced> [{UNSPACED}][{UNSPACED}\p{{M}}]* )
  | (?P<word> {WORD} )
  | (?P<mark> \p{{P}} | ` ) (?P=mark)*+ \p{{M}}*                                            # a run of one mark
  | (?! [\s\p{{Cc}}\p{{Cf}}\p{{Co}}] ) \X                  # a symbol, or an emoji of one or more characters
"""


def check_word_rule(name: str) -> None:
    """Raise a ValueError for an unknown rule."""
    if name not in CUTS:
        raise ValueError(f"word_rule must be one of {', '.join(CUTS)}, got {name!r}")


def find_words(text: str, rule: str = "plain", special_tokens: tuple[str, ...] = ()) -> list[tuple[Span, bool]]:
    """Find the words and the marks of a text, in their order. Only blanks and what nobody sees (control characters,
    formats such as soft hyphens beside words, and private use) are left out.

    Args:
        rule: one of `CUTS`.
        special_tokens: a tokenizer's own, such as ``[UNK]``, which stay whole.

    Returns:
        For each, its first character and the one after its last; and whether it is a stretch of a script without
        blanks, in which a tokenizer has to find the words.

    Raises:
        ValueError: for an unknown rule.
    """
    check_word_rule(rule)
    token, cut = _patterns(rule, special_tokens)
    cuts = [place.start() for place in cut.finditer(text)]
    found: list[tuple[Span, bool]] = []
    for match in token.finditer(text):
        kind, (start, end) = match.lastgroup, match.span()
        if cuts and kind == "word":
            places = [start, *cuts[bisect_right(cuts, start) : bisect_left(cuts, end)], end]
            found += [(span, False) for span in pairwise(places)]
        else:
            found.append(((start, end), kind == "unspaced"))
    return found


@cache
def _patterns(rule: str, special_tokens: tuple[str, ...]) -> tuple[regex.Pattern, regex.Pattern]:
    """What finds words, and what finds the places where they are cut."""
    flags = regex.VERBOSE | regex.VERSION1
    token = "|".join([*map(regex.escape, special_tokens), TOKEN])
    return regex.compile(token, flags), regex.compile(CUTS[rule], flags | regex.IGNORECASE)


__all__ = ["CUTS", "check_word_rule", "find_words"]
