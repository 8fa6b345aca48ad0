"""Tokenizers learnt from raw text: standard fast tokenizers with Fast-R2D2's task tokens."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from .language import CHARACTER
from .word_rules import check_word_rule
from .words import checked_sentences

SPECIAL_TOKENS = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
    "bos_token": "[BOS]",
    "eos_token": "[EOS]",
}
EXTRA_TOKENS = ["[SUM]", "[PAIR]"]
ALL_SPECIAL_TOKENS = [*SPECIAL_TOKENS.values(), *EXTRA_TOKENS]
KINDS = ("wordpiece", "character", "word")

# The normalizer turns blank text into this character. No text has it, so no vocabulary knows it, and it becomes [UNK].
# The normalizer never sees an empty string; `tokenize_sentences` turns that into [UNK].
NO_TEXT = "\ue000"
RARE_CHARACTERS = 1e-4  # the share of a text whose characters no piece has


def train_tokenizer(
    sentences: Iterable[str],
    vocab_size: int = 30522,
    kind: str = "wordpiece",
    lowercase: bool = True,
    min_frequency: int = 2,
    show_progress: bool = True,
    word_rule: str = "plain",
    abbreviations: Sequence[str] | None = None,
    coordinators: Sequence[str] | None = None,
) -> PreTrainedTokenizerFast:
    """Learn a vocabulary from raw text. The same sentences give the same tokenizer in any order.

    Args:
        sentences: raw text, read once. ``"wordpiece"`` keeps all of it in memory during training.
        vocab_size: the maximum size of the vocabulary, with the 8 special tokens.
        kind: ``"wordpiece"`` (splits words and punctuation as BERT does; words with the rarest characters, together
            0.01 % of the text, are unknown), ``"character"`` (every character except blanks, for Chinese) or ``"word"``
            (splits at blanks; rare words are unknown).
        lowercase: turn text into lower case. Accents and other marks of letters stay: in many languages they tell words
            apart.
        min_frequency: the vocabulary leaves out pieces that occur less often than this.
        word_rule: what a word is where text is parsed: ``"plain"``, or ``"english"``, which cuts ``don't`` into ``do``
            and ``n't`` as treebanks do. It is saved with the tokenizer.
        abbreviations: after which a full stop ends no sentence where running text is parsed (see `find_abbreviations`).
            They are saved with the tokenizer.
        coordinators: by which a list is known (see `find_coordinators`), saved as well.

    Returns:
        A standard tokenizer, which `AutoTokenizer` loads without trusting remote code. It adds no special tokens to a
        sentence: the model adds its task tokens itself.

    Raises:
        ValueError: if ``kind`` or ``word_rule`` is unknown, if ``vocab_size`` leaves no room beside the special tokens,
            or as `checked_sentences` raises it.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    check_word_rule(word_rule)
    if vocab_size <= len(ALL_SPECIAL_TOKENS):
        raise ValueError(
            f"vocab_size must be > {len(ALL_SPECIAL_TOKENS)}, the number of special tokens, got {vocab_size}"
        )
    if isinstance(sentences, str):
        raise ValueError("sentences must be several strings, got one; read a file with read_sentences(path)")
    found = {"abbreviations": abbreviations, "coordinators": coordinators}
    pieces = _learn_pieces(checked_sentences(sentences), vocab_size, kind, lowercase, min_frequency, show_progress)
    tokenizer = _blank_tokenizer(kind, lowercase)
    tokenizer.model = _model(kind, {piece: number for number, piece in enumerate([*ALL_SPECIAL_TOKENS, *pieces])})
    tokenizer.add_special_tokens(_added_tokens())
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, extra_special_tokens=EXTRA_TOKENS, padding_side="right",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],  # types tell a pair's sentences apart
        word_rule=word_rule, **SPECIAL_TOKENS,
        **{name: [*words] for name, words in found.items() if words is not None},
    )  # fmt: skip


def task_token_ids(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """The token ids that `FastR2D2Config` needs, under the names of its fields, such as ``sum_token_id``.

    Raises:
        ValueError: if the tokenizer lacks one of these tokens; the message names the first.
    """
    tokens = {name: SPECIAL_TOKENS[f"{name}_token"] for name in ("pad", "unk", "bos", "eos", "cls", "mask")}
    tokens |= {"sum": "[SUM]", "pair": "[PAIR]"}
    vocabulary, ids = tokenizer.get_vocab(), {}
    for name, default in tokens.items():
        token = getattr(tokenizer, f"{name}_token", None) or default
        if token not in vocabulary:
            raise ValueError(
                f"the tokenizer has no {default}; add it with tokenizer.add_special_tokens, or make a "
                "tokenizer with train_tokenizer"
            )
        ids[f"{name}_token_id"] = vocabulary[token]
    return ids


def _learn_pieces(
    sentences: Iterable[str], vocab_size: int, kind: str, lowercase: bool, min_frequency: int, show_progress: bool
) -> list[str]:
    """The learnt pieces in alphabetical order, without special tokens.

    Some trainers number the pieces differently in each run. With sorted pieces, equal vocabularies have equal ids.
    """
    learner, first_pieces = _blank_tokenizer(kind, lowercase), list[str]()
    new_trainer: Callable[..., trainers.Trainer] = trainers.WordLevelTrainer
    if kind == "wordpiece":
        sentences = list(sentences)
        alphabet, first_pieces = _characters(learner, sentences)
        new_trainer = partial(trainers.WordPieceTrainer, initial_alphabet=alphabet, limit_alphabet=len(alphabet))
    trainer = new_trainer(
        vocab_size=vocab_size, min_frequency=min_frequency, show_progress=show_progress,
        special_tokens=[*_added_tokens(), *first_pieces],
    )  # fmt: skip
    learner.train_from_iterator(sentences, trainer)
    # Blank lines of the corpus count as NO_TEXT. If the vocabulary had it, blank text would not become [UNK].
    return sorted(set(learner.get_vocab()) - {*ALL_SPECIAL_TOKENS, NO_TEXT})


def _characters(tokenizer: Tokenizer, sentences: list[str]) -> tuple[list[str], list[str]]:
    """The characters that pieces are made of, and the pieces ``##a``, ... of those that continue a word, both sorted.

    The rarest are left out, those of ASCII apart: an encyclopedia has names in every script, and their characters would
    take a third of 8,000 pieces. A word with one of them is [UNK].

    The trainer numbers continuing pieces in the order of a hash table, which differs between runs. Of two equally
    frequent merges it takes the one with the lower numbers, so the vocabulary would differ as well. Pieces that are
    given to the trainer at the start have fixed numbers, and equal text gives equal vocabularies.
    """
    numbers: Counter[str] = Counter()
    continuing: set[str] = set()
    for sentence in sentences:
        for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(sentence)):
            numbers.update(word)
            continuing.update(word[1:])
    left = RARE_CHARACTERS * numbers.total()
    for character, number in sorted(numbers.items(), key=lambda item: (item[1], item[0])):
        left -= number
        if left < 0:
            break
        if not character.isascii():
            del numbers[character]
    return sorted(numbers), [f"##{character}" for character in sorted(continuing & numbers.keys())]


def _added_tokens() -> list[AddedToken]:
    # Each takes the blanks around it. A blank between two of them would be normalized alone, to a third [UNK].
    return [AddedToken(token, lstrip=True, rstrip=True, special=True) for token in ALL_SPECIAL_TOKENS]


def _model(kind: str, vocabulary: dict[str, int] | None = None) -> models.Model:
    if kind == "wordpiece":
        return models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100)
    return models.WordLevel(vocabulary, unk_token="[UNK]")


def _blank_tokenizer(kind: str, lowercase: bool) -> Tokenizer:
    """A tokenizer that does not know any piece yet."""
    tokenizer = Tokenizer(_model(kind))
    cleaner = normalizers.BertNormalizer(
        lowercase=lowercase, strip_accents=False, handle_chinese_chars=kind == "wordpiece"
    )
    dotted = [normalizers.Replace("İ", "i")] if lowercase else []  # which would become i and a lone dot
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), *dotted, cleaner, normalizers.Replace(Regex(r"^\s*$"), NO_TEXT)]
    )
    if kind == "wordpiece":
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
    elif kind == "character":
        each_character = pre_tokenizers.Split(Regex(CHARACTER), behavior="isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), each_character])
        tokenizer.decoder = decoders.Fuse()
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer
