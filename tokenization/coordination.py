"""Lists, such as ``apples, pears and plums``: the words that join their parts, and the commas that stand in them.

Constituents hardly ever cross a comma, but a list does.
"""

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from .language import COMMAS, is_quote
from .word_rules import find_words

LONGEST_PART = 3  # words, of a part of a list that stands before a coordinator or another comma

SENTENCES, COMMONEST = 100_000, 100  # of a text, and words of these, that are looked at
FEWEST, LEAST_SHARE = 10, 0.01  # of pairs in both orders
SHARE_OF_BEST, NUMBER_OF_BEST = 0.33, 0.03  # of such pairs, by the word that has most


def find_coordinators(sentences: Iterable[str]) -> list[str]:
    """The words that join equals, such as *and* and *or*, as raw text shows them: with *men and women* a text also has
    *women and men*. Of other common words, hardly any has its neighbours in both orders.

    Args:
        sentences: raw text; the first 100,000 are read.

    Returns:
        Words in lower case, sorted; none where too few change places, nor in scripts without blanks.
    """
    texts = [_words(sentence) for sentence in itertools.islice(sentences, SENTENCES)]
    counted = Counter(word for words in texts for word in words if word)
    neighbours: dict[str, Counter[tuple[str, str]]] = {word: Counter() for word, _ in counted.most_common(COMMONEST)}
    for words in texts:
        for before, word, after in zip(words, words[1:], words[2:], strict=False):
            if word in neighbours and all(part and part not in neighbours for part in (before, after)):
                neighbours[word][before, after] += 1
    numbers = {word: _in_both_orders(pairs) for word, pairs in neighbours.items()}
    shares = {word: numbers[word] / max(1, pairs.total()) for word, pairs in neighbours.items()}
    least_share = max(LEAST_SHARE, SHARE_OF_BEST * max(shares.values(), default=0))
    fewest = max(FEWEST, NUMBER_OF_BEST * max(numbers.values(), default=0))
    return sorted(word for word in neighbours if shares[word] >= least_share and numbers[word] >= fewest)


def _words(sentence: str) -> list[str]:
    """The words of a sentence in lower case, without what is in scripts without blanks; "" for what has no letter."""
    words = [sentence[start:end].lower() for (start, end), is_unspaced in find_words(sentence) if not is_unspaced]
    return [word if any(map(str.isalpha, word)) else "" for word in words]


def _in_both_orders(pairs: Counter[tuple[str, str]]) -> int:
    """How many pairs of different words have another one that is their reverse."""
    return sum(min(number, pairs[after, before]) for (before, after), number in pairs.items() if before != after)


def loose_commas(
    words: Sequence[str], marks: Sequence[str], places: Sequence[int], coordinators: Collection[str]
) -> set[int]:
    """The commas that are no edges of larger constituents: those in a list, and those before a word that stands alone,
    as in *He left, too*.

    Args:
        words: without the marks.
        places: for each mark, the number of words before it.
        coordinators: in lower case, as from `find_coordinators`. Without any, no list is found.

    Returns:
        The numbers of words before them.
    """
    stops: dict[int, bool] = {}  # whether only commas stand there
    for mark, place in zip(marks, places, strict=True):
        if not is_quote(mark):
            stops[place] = mark in COMMAS and stops.get(place, True)
    alone, in_lists = set[int](), set[int]()
    if not any(stops.values()):
        return alone
    joins = [word.lower() in coordinators for word in words]
    for place, after in reversed(list(itertools.pairwise(sorted({*stops, len(words)})))):
        if stops[place]:
            part, is_short = joins[place:after], after - place <= LONGEST_PART
            if len(part) == 1:
                alone.add(place)
            if is_short and stops.get(after, False) and any(joins[after : after + 1]):
                in_lists |= {place, after}  # , pears, and plums
            elif any(part[1 : LONGEST_PART + 1]) or is_short and after in in_lists:
                in_lists.add(place)  # , pears and plums
    return alone | in_lists
