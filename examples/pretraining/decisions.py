"""What the raw text says about its language: it decides every option whose value is ``auto``, and gives its reason.

A language that branches to the right has its function words at the beginning of what they belong to, one that branches
to the left at the end. So whether the commonest words begin or end units of the text (see `counts`) tells the
direction, without a treebank.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import regex
from datasets import Dataset, IterableDataset

from pretraining.corpus import read_texts, sentences_of
from pretraining.options import AUTO, Decision, Options
from tokenization_fast_r2d2.language import CHARACTER, are_marks, begins_name
from tokenization_fast_r2d2.word_rules import find_words

LINES = 20_000  # of the corpus, taken at equal distances
COMMONEST = 20  # words that tell the direction of branching
LEAST_DIRECTION, LARGEST_SKEW = 0.75, 1.0  # with less a language may branch to both sides, or to the other
UNSPACED = 0.5  # the share of characters in scripts without blanks, from which tokens are characters
# The share of words with a capital letter inside sentences: with fewer there are no capitals, with more all nouns have
# one, as in German.
NAMES = 0.002, 0.22
WORDS_PER_PIECE, SMALLEST_VOCABULARY, LARGEST_VOCABULARY = 50, 1000, 8000
WORDS_FOR_ALL_TOKENS, SHORTEST = 4_000_000, 0.25  # a recipe's stages are shorter for less text

FEWEST_WORDS, FEW_WORDS = 10_000, 100_000
FEWEST_IN_SENTENCE = 2.5  # words
GROUPED = 40  # words that are parted into languages
LONG_SENTENCE = 12  # words
SHARE_OF_LANGUAGE, STRANGERS = 0.03, 0.75


@dataclass
class Profile:
    """What is counted in some sentences. Words are in lower case, and single characters where a script has no blanks.

    Attributes:
        sentences: the words of each, without marks.
        occurrences, begins, ends: of words; how often they begin and end units.
        capitals: the number of words with a capital letter inside sentences, and of all words there.
        unspaced: the number of words of scripts without blanks.
    """

    sentences: list[list[str]] = field(default_factory=list)
    occurrences: Counter[str] = field(default_factory=Counter)
    begins: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    capitals: tuple[int, int] = (0, 0)
    unspaced: int = 0

    @property
    def num_words(self) -> int:
        return self.occurrences.total()

    def add(self, sentence: str) -> None:
        words: list[str] = []
        for (first, last), is_unspaced in find_words(sentence):
            found = regex.findall(CHARACTER, sentence[first:last]) if is_unspaced else [sentence[first:last]]
            self.unspaced += len(found) if is_unspaced else 0
            words += found
        marked = zip(words, are_marks(words), strict=True)
        pairs = [(word, is_mark) for word, is_mark in marked if is_mark or any(map(str.isalnum, word))]  # no symbols
        inside = [word for word, is_mark in pairs if not is_mark][1:]
        number, of = self.capitals
        self.capitals = number + sum(map(begins_name, inside)), of + len(inside)
        units = itertools.groupby(pairs, lambda pair: pair[1])
        units = [[word.lower() for word, _ in unit] for is_mark, unit in units if not is_mark]
        self.begins.update(unit[0] for unit in units)
        self.ends.update(unit[-1] for unit in units)
        self.sentences.append([word for unit in units for word in unit])
        self.occurrences.update(self.sentences[-1])

    @property
    def direction(self) -> float:
        """The mean over the commonest words of ``log(begins / ends)``, weighted by how often they occur: above 0 where
        a language branches to the right."""
        commonest = self.occurrences.most_common(COMMONEST)
        ratios = [number * math.log((self.begins[word] + 1) / (self.ends[word] + 1)) for word, number in commonest]
        return sum(ratios) / max(1, sum(number for _, number in commonest))

    @property
    def share_of_unspaced(self) -> float:
        return self.unspaced / max(1, self.num_words)


def decide(options: Options) -> tuple[Options, list[str]]:
    """Read some of the corpus, and give every option of ``auto`` its value.

    Returns:
        The options with their decisions, in which names and length are applied to model and stages; and warnings.

    Raises:
        ValueError: as `read_texts`, for a corpus from which no tree can be learnt, and if no stage is left.
    """
    data = options.data
    has_vocabulary = options.model.model or data.tokenizer
    asked = [name for name in DECIDED if getattr(data, name) == AUTO and not (name == "vocab_size" and has_vocabulary)]
    if not asked:
        return apply_to_stages(options), []
    lines, num_lines = sample(read_texts(data), LINES)
    profile = Profile()
    for sentence in sentences_of(lines, data):
        profile.add(sentence)
    num_words = profile.num_words and profile.num_words * num_lines / len(lines)
    check_amount(profile, num_words)
    found = {name: DECIDED[name](profile, num_words) for name in asked}
    decided = replace(data, **{name: value for name, (value, _) in found.items()})
    decisions = tuple(Decision(name, value, reason) for name, (value, reason) in found.items())
    warnings = corpus_warnings(profile, num_words, decided.tokenizer_kind)
    return apply_to_stages(replace(options, data=decided, decisions=decisions)), warnings


def apply_to_stages(options: Options) -> Options:
    """The options with the stages that are for their tokenizer and language, of their ``length``, and without any bonus
    for names if they are not to be used."""
    factor, model, data = float(options.data.length), options.model, options.data
    has_all = data.tokenizer_kind != "character" and float(data.counts_skew) != 0
    stages = tuple(stage for stage in options.stages if stage.always or has_all)
    if options.stages and not stages:
        raise ValueError(f"the recipe has no stage for a tokenizer of kind {data.tokenizer_kind} and counts_skew "
                         f"{data.counts_skew}: all have always: false")  # fmt: skip
    if factor != 1:
        stages = tuple(replace(stage, tokens=stage.tokens and max(1, round(factor * stage.tokens))) for stage in stages)
    if options.data.names == "no":
        values = [{name: value for name, value in stage.values.items() if name != "names_bonus"} for stage in stages]
        stages = tuple(replace(stage, values=of_stage) for stage, of_stage in zip(stages, values, strict=True))
        model = replace(model, config_overrides=",".join(filter(None, [model.config_overrides, "names_bonus=0"])))
    return replace(options, stages=stages, model=model)


def sample(texts: Dataset | IterableDataset, number: int) -> tuple[list[str], float]:
    """At most so many lines from all over the corpus, or from the beginning of a stream; and the number of all lines,
    which is infinite if a stream goes on."""
    if not isinstance(texts, Dataset):
        lines = [row["text"] for row in itertools.islice(texts, number + 1)]
        return lines[:number], len(lines) if len(lines) <= number else math.inf
    rows = np.unique(np.linspace(0, len(texts) - 1, min(number, len(texts))).astype(int))
    return texts[rows]["text"], len(texts)


def _tokenizer_kind(profile: Profile, num_words: float) -> tuple[str, str]:
    share = profile.share_of_unspaced
    kind = "character" if share > UNSPACED else "wordpiece"
    return kind, f"{share:.0%} of the words are of scripts without blanks"


def _vocab_size(profile: Profile, num_words: float) -> tuple[str, str]:
    size = min(max(num_words / WORDS_PER_PIECE, SMALLEST_VOCABULARY), LARGEST_VOCABULARY)
    return str(int(size)), _amount(num_words)


def _counts_skew(profile: Profile, num_words: float) -> tuple[str, str]:
    s = profile.direction
    skew = min(max(s, -LARGEST_SKEW), LARGEST_SKEW) if abs(s) >= LEAST_DIRECTION else 0
    what = "both begin and end" if not skew else "mostly begin" if skew > 0 else "mostly end"
    examples = ", ".join(word for word, _ in profile.occurrences.most_common(5))
    return f"{skew:.2f}", f"the commonest words ({examples}, ...) {what} units: s = {s:.2f}"


def _names(profile: Profile, num_words: float) -> tuple[str, str]:
    (capitals, words), (least, most) = profile.capitals, NAMES
    share = capitals / max(1, words)
    return "yes" if least < share < most else "no", f"{share:.1%} of the words inside sentences begin with a capital"


def _length(profile: Profile, num_words: float) -> tuple[str, str]:
    factor = min(max((num_words / WORDS_FOR_ALL_TOKENS) ** 0.5, SHORTEST), 1.0)
    return f"{factor:.2f}", _amount(num_words)


def _amount(num_words: float) -> str:
    return f"there are {'many' if math.isinf(num_words) else f'about {num_words:,.0f}'} words"


DECIDED: dict[str, Callable[[Profile, float], tuple[str, str]]] = {
    "tokenizer_kind": _tokenizer_kind,
    "vocab_size": _vocab_size,
    "counts_skew": _counts_skew,
    "names": _names,
    "length": _length,
}


def check_amount(profile: Profile, num_words: float) -> None:
    """Raise ValueError if a corpus has too few words, or sentences of hardly more than one."""
    mean = num_words and profile.num_words / len(profile.sentences)
    if num_words < FEWEST_WORDS:
        raise ValueError(
            f"the corpus has only about {num_words:,.0f} words; trees need at least {FEWEST_WORDS:,}, and 100,000 or "
            "more to be good. Give more text as --corpus"
        )
    if mean < FEWEST_IN_SENTENCE:
        raise ValueError(
            f"the sentences of the corpus have {mean:.1f} words on average, and trees need sentences; if each "
            "line is a word of a sentence, join the lines"
        )


def corpus_warnings(profile: Profile, num_words: float, tokenizer_kind: str) -> list[str]:
    """What is odd about a corpus, in sentences."""
    warnings = []
    if num_words < FEW_WORDS:
        warnings.append(f"the corpus has only about {num_words:,.0f} words; {FEW_WORDS:,} or more give better trees")
    if profile.share_of_unspaced > UNSPACED and tokenizer_kind == "character":
        warnings.append(
            "the text has no blanks between words, so trees are over characters, except where parsers are given words; "
            "for trees over words, put blanks between them and give --tokenizer_kind word"
        )
    groups = languages(profile.sentences)
    if len(groups) > 1:
        shown = " and ".join(", ".join(words[:6]) for words in groups)
        warnings.append(f"the corpus seems to have two languages, whose words hardly meet in sentences: {shown}; give "
                        "text of one language")  # fmt: skip
    return warnings


def languages(sentences: list[list[str]]) -> list[list[str]]:
    """The commonest words of one language, or of two: groups of words that hardly ever stand in one sentence.

    Within a language the commonest words meet as often as chance has it in sentences that are not short, whatever the
    groups.
    """
    sentences = [sentence for sentence in sentences if len(sentence) >= LONG_SENTENCE]
    occurrences = Counter(word for sentence in sentences for word in sentence)
    words = [word for word, _ in occurrences.most_common(GROUPED)]
    numbers = {word: number for number, word in enumerate(words)}
    holds = np.zeros((len(sentences), len(words)))
    for row, sentence in enumerate(sentences):
        holds[row, [numbers[word] for word in sentence if word in numbers]] = 1
    holds = holds[holds.sum(1) > 1]
    shares = holds.mean(0) if len(holds) else np.zeros(len(words))
    if len(words) < 4 or not shares.all():
        return [words]
    meet, by_chance = holds.T @ holds / len(holds), np.outer(shares, shares)
    ratio = np.log(meet / by_chance + 1e-3)
    np.fill_diagonal(ratio, 0)
    is_first = np.linalg.eigh(ratio - ratio.mean())[1][:, -1] > 0
    across = np.ix_(is_first, ~is_first)
    smaller = min(shares[is_first].sum(), shares[~is_first].sum()) / shares.sum()
    if smaller < SHARE_OF_LANGUAGE or meet[across].sum() > STRANGERS * by_chance[across].sum():
        return [words]
    return [list(itertools.compress(words, group)) for group in (is_first, ~is_first)]
