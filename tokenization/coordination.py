"""Lists, such as ``apples, pears and plums``: the words that join their parts, and the commas that stand in them.

Constituents hardly ever cross a comma, but a list does.
"""

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

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


class Commas(NamedTuple):
    """The commas of a sentence that are no edges of larger constituents, by the numbers of words before them.

    Attributes:
        alone: those before a word that stands alone, as in *He left, too*.
        in_lists: those in a list.
        joining: those of them that stand between two single words.
    """

    alone: set[int]
    in_lists: set[int]
    joining: set[int]

    @property
    def loose(self) -> set[int]:
        return self.alone | self.in_lists


def find_commas(
    words: Sequence[str], marks: Sequence[str], places: Sequence[int], coordinators: Collection[str]
) -> Commas:
    """Look at the commas of a sentence, from right to left.

    Args:
        words: without its marks.
        places: for each mark, the number of words before it.
        coordinators: in lower case, as from `find_coordinators`. Without any, no list is found.
    """
    stops: dict[int, bool] = {}  # whether only commas stand there
    for mark, place in zip(marks, places, strict=True):
        if not is_quote(mark):
            stops[place] = mark in COMMAS and stops.get(place, True)
    found = Commas(set(), set(), set())
    if not any(stops.values()):
        return found
    joins = [word.lower() in coordinators for word in words]
    for place, after in reversed(list(itertools.pairwise(sorted({*stops, len(words)})))):
        if stops[place]:
            ends_list = stops.get(after, False) and any(joins[after : after + 1])
            _look_at(place, joins[place:after], after, ends_list, found)
    return found


def _look_at(place: int, part: list[bool], after: int, ends_list: bool, found: Commas) -> None:
    """What the comma at a place is, after all those behind it.

    Args:
        part: for each word up to the next mark, whether it is a coordinator.
        after: the place of that mark.
        ends_list: whether that mark is a comma before a coordinator.
    """
    is_short = len(part) <= LONGEST_PART
    if len(part) == 1:
        found.alone.add(place)
    if is_short and ends_list:
        found.in_lists.update((place, after))  # , pears, and plums
    elif any(part[1 : LONGEST_PART + 1]) or is_short and after in found.in_lists:
        found.in_lists.add(place)  # , pears and plums
    if is_short and any(part[1:2]) or len(part) == 1 and (ends_list or after in found.joining):
        found.joining.add(place)
