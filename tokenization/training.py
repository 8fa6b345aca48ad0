"""Tokenizers from raw text: stock fast tokenizers with Fast-R2D2's task tokens."""

from collections.abc import Callable, Iterable
from functools import partial

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

SPECIAL_TOKENS = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
    "bos_token": "[BOS]",
    "eos_token": "[EOS]",
}
EXTRA_TOKENS = ["[SUM]", "[PAIR]"]
KINDS = ("wordpiece", "character", "word")

# A character that no text holds and so no vocabulary knows: blank text becomes it, and it becomes [UNK]. Text that is
# empty from the start never gets to the normalizer; `tokenize_sentences` sees to that.
NO_TEXT = "\ue000"


def train_tokenizer(
    sentences: Iterable[str],
    vocab_size: int = 30522,
    kind: str = "wordpiece",
    lowercase: bool = True,
    min_frequency: int = 2,
    show_progress: bool = True,
) -> PreTrainedTokenizerFast:
    """Learn a vocabulary.

    Args:
        sentences: raw text; read once, and of ``"wordpiece"`` kept while it is learnt from.
        vocab_size: most entries, the 8 special tokens included.
        kind: ``"wordpiece"`` (words and punctuation split as by BERT), ``"character"`` (every character but blanks, as
            for Chinese) or ``"word"`` (split at blanks; rare words are unknown).
        lowercase: also strip accents. Case matters to no script without it.
        min_frequency: rarer pieces are left out.

    Returns:
        A stock tokenizer that `AutoTokenizer` loads without trusting code. A sentence's ids are its own pieces only:
        the model adds its task tokens itself. The same sentences give the same tokenizer, whatever their order.

    Raises:
        ValueError: for an unknown ``kind``, a ``vocab_size`` that the special tokens alone fill, or one string in
            place of sentences.
    """
    specials = [*SPECIAL_TOKENS.values(), *EXTRA_TOKENS]
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    if vocab_size <= len(specials):
        raise ValueError(f"vocab_size must be > {len(specials)}, the number of special tokens, got {vocab_size}")
    if isinstance(sentences, str):
        raise ValueError("sentences must be several strings, got one; read a file with read_sentences(path)")
    # They take the blanks around them: a blank left between two would be normalized alone, to a third [UNK].
    special_tokens = [AddedToken(token, lstrip=True, rstrip=True, special=True) for token in specials]
    learner, new_model, trainer_class = _blank_tokenizer(kind, lowercase)
    first: list[str] = []
    if kind == "wordpiece":
        sentences = list(sentences)
        first = _continuing_characters(learner, sentences)
    trainer = trainer_class(
        vocab_size=vocab_size, min_frequency=min_frequency, show_progress=show_progress,
        special_tokens=[*special_tokens, *first],
    )  # fmt: skip
    learner.train_from_iterator(sentences, trainer)
    # Some trainers number pieces differently each time; their alphabet makes ids a function of the pieces.
    # Blank lines of the corpus were counted as NO_TEXT; in the vocabulary it would keep blank text from being [UNK].
    pieces = sorted(set(learner.get_vocab()) - {*specials, NO_TEXT})
    tokenizer, *_ = _blank_tokenizer(kind, lowercase)
    tokenizer.model = new_model({piece: number for number, piece in enumerate([*specials, *pieces])})
    tokenizer.add_special_tokens(special_tokens)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, extra_special_tokens=EXTRA_TOKENS, padding_side="right",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],  # types tell a pair's sentences apart
        **SPECIAL_TOKENS,
    )  # fmt: skip


def _continuing_characters(tokenizer: Tokenizer, sentences: list[str]) -> list[str]:
    """The pieces ``##a``, ``##b``, ... of all characters that continue a word, sorted.

    The trainer takes the more frequent of two merges, of equals the one with lower numbers, and numbers these pieces as
    it meets them in a table that has another order each time. Given to it first, they always have the same numbers, and
    so equal text has equal vocabularies.
    """
    characters: set[str] = set()
    for sentence in sentences:
        words = tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(sentence))
        characters.update(*(word[1:] for word, _ in words))
    return [f"##{character}" for character in sorted(characters)]


def _blank_tokenizer(kind: str, lowercase: bool) -> tuple[Tokenizer, Callable[..., models.Model], type]:
    """A tokenizer that knows no piece yet, what makes its model from a vocabulary, and the class of its trainer."""
    if kind == "wordpiece":
        new_model = partial(models.WordPiece, unk_token="[UNK]", max_input_chars_per_word=100)
        trainer, splitter = trainers.WordPieceTrainer, pre_tokenizers.BertPreTokenizer()
    else:
        new_model = partial(models.WordLevel, unk_token="[UNK]")
        trainer, splitter = trainers.WordLevelTrainer, pre_tokenizers.WhitespaceSplit()
    tokenizer = Tokenizer(new_model())
    tokenizer.pre_tokenizer = splitter
    if kind == "wordpiece":
        tokenizer.decoder = decoders.WordPiece()
    if kind == "character":
        # Blanks are gone by then; every character that is left stands alone.
        characters = pre_tokenizers.Split(Regex("."), behavior="isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([splitter, characters])
        tokenizer.decoder = decoders.Fuse()
    cleaner = normalizers.BertNormalizer(lowercase=lowercase, handle_chinese_chars=kind == "wordpiece")
    tokenizer.normalizer = normalizers.Sequence([cleaner, normalizers.Replace(Regex(r"^\s*$"), NO_TEXT)])
    return tokenizer, new_model, trainer


def task_token_ids(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """The token ids that `FastR2D2Config` wants, by its field names.

    Raises:
        ValueError: naming the first token that the tokenizer lacks.
    """
    tokens = {name: SPECIAL_TOKENS[f"{name}_token"] for name in ("pad", "bos", "eos", "cls", "mask")}
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
