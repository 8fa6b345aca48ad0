"""What the fuzzers draw: texts, batches, trees in brackets, damage, and values of every wrong kind."""

import torch
from hypothesis import settings
from hypothesis import strategies as st

from modeling_fast_r2d2 import FastR2D2Config

# For tests whose examples read files or load checkpoints.
FEWER = settings(max_examples=settings.default.max_examples // 5)

ORDINARY = "the old man bought a new car and drove it to New York , last year .".split()
STRANGE = [
    "", " ", "\t", "\u200b", "\u00a0", "\x00", "\x1b[31m", "\ufeff", "\u202e", "\ufffd", "e\u0301", "İ", "ﬁ", "日本語",
    "👩‍👩‍👧", "🙂", "नमस्ते", "שלום", "مرحبا", "(", ")", "((", "-LRB-", "[UNK]", "[CLS]", "##s", "<unk>", "@-@", "--",
    "``", "x" * 150, "don't", "3.14", "a/b", "\\", '"', "\r", "\u2028",
]  # fmt: skip

any_word = st.one_of(st.sampled_from(ORDINARY), st.sampled_from(STRANGE), st.text(max_size=6))
texts = st.one_of(
    st.lists(st.sampled_from(ORDINARY), max_size=30).map(" ".join),
    st.lists(any_word, max_size=12).map(" ".join),
    st.text(max_size=40),
)

junk = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 70), st.floats(), st.text(max_size=5), st.lists(st.integers(0, 9)),
    st.sampled_from(["forced", "chart", "gelu", 2.5, -1, 0, 1e30, float("nan"), float("inf"), {}, {"a": 1}]),
)  # fmt: skip
FIELDS = sorted(name for name in FastR2D2Config.__annotations__ if name not in ("keys_to_ignore_at_inference",))
SMALL = dict(
    vocab_size=60, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, window_size=3,
    parser_embedding_size=8, parser_hidden_size=8, parser_num_layers=1, parser_num_attention_heads=2,
)  # fmt: skip
configurations = st.dictionaries(st.sampled_from(FIELDS), junk, min_size=1, max_size=3)


@st.composite
def batches(draw) -> dict[str, torch.Tensor]:
    """Inputs of a model of `SMALL` that it must accept."""
    lengths = draw(st.lists(st.one_of(st.integers(1, 8), st.integers(1, 30)), min_size=1, max_size=4))
    width = max(lengths) + draw(st.integers(0, 2))
    chance = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    mask = (torch.arange(width) < torch.tensor(lengths)[:, None]).long()
    ids = torch.randint(8, SMALL["vocab_size"], (len(lengths), width), generator=chance) * mask
    batch = {"input_ids": ids, "attention_mask": mask}
    if draw(st.booleans()):
        batch["atom_spans"] = _spans(draw, lengths)
    if draw(st.booleans()):  # few values, so that there are ties
        values = torch.tensor(draw(st.lists(st.sampled_from([0.0, 1.0, -1e4, 1e30]), min_size=1, max_size=4)))
        batch["split_scores"] = values[torch.randint(len(values), (len(lengths), max(0, width - 1)), generator=chance)]
    return batch


def _spans(draw, lengths: list[int]) -> torch.Tensor:
    """Word spans as a tokenizer makes them: two or more pieces each, side by side."""
    rows = []
    for length in lengths:
        cuts = sorted(draw(st.sets(st.integers(0, length), max_size=6)) | {0, length})
        rows.append([(first, end - 1) for first, end in zip(cuts, cuts[1:], strict=False) if end - first > 1])
    spans = torch.full((len(rows), max(1, *map(len, rows)) if len(rows) > 1 else max(1, len(rows[0])), 2), -1)
    for row, found in zip(spans, rows, strict=True):
        row[: len(found)] = torch.tensor(found, dtype=torch.long).view(-1, 2)
    return spans


@st.composite
def damaged_batches(draw) -> dict[str, torch.Tensor]:
    """Inputs with one thing changed; the model may refuse them or not."""
    batch = draw(batches())
    name = draw(st.sampled_from(sorted(batch)))
    value, kind = batch[name], draw(st.integers(0, 6))
    if kind == 0:
        kinds = [torch.int16, torch.uint8, torch.bool, torch.int32, torch.float32, torch.complex64, torch.float16]
        value = value.to(draw(st.sampled_from(kinds)))
    elif kind == 1:
        value = value[..., : draw(st.integers(0, 2))]
    elif kind == 2:
        value = value[: draw(st.integers(0, 1))]
    elif kind == 3:
        value = value[draw(st.sampled_from([None, 0]))]
    elif value.numel():
        numbers = [-1, -7, 59, 60, 10**6] if not value.is_floating_point() else [float("nan"), float("inf"), -3e38]
        value = value.clone()
        value.view(-1)[draw(st.integers(0, value.numel() - 1))] = draw(st.sampled_from(numbers))
    return batch | {name: value}


@st.composite
def brackets(draw) -> str:
    word = st.sampled_from(ORDINARY) | st.sampled_from(["日本語", "-LRB-", "[UNK]", "don't", "x" * 150, "e\u0301"])
    label = st.sampled_from(["NP", "VP", "NN", "DT", ".", ",", "-NONE-", "NP-SBJ=1", "S|X"])
    leaf = st.builds("({} {})".format, label, word)
    return draw(st.recursive(leaf, lambda inner: st.builds(
        lambda name, parts: f"({name} {' '.join(parts)})", label, st.lists(inner, min_size=1, max_size=4)
    ), max_leaves=15))  # fmt: skip


@st.composite
def damaged(draw, whole: st.SearchStrategy) -> bytes | str:
    """A text, or bytes, of which some are dropped, doubled or replaced."""
    value = draw(whole)
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(value)))
        end = draw(st.integers(start, min(len(value), start + 8)))
        alphabet = st.binary(max_size=3) if isinstance(value, bytes) else st.text("() \n\"'{}[]:,0aS\\", max_size=3)
        value = value[:start] + draw(alphabet) + value[draw(st.sampled_from([start, end])) :]
    return value
