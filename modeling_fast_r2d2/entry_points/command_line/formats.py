"""How `fast-r2d2 parse` writes trees."""

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from modeling_fast_r2d2.parsing.tree_parser import ParsedSentence

    from .texts import Text


def as_brackets(parsed: "ParsedSentence", source: dict[str, Any], min_confidence: float = 0.0) -> str:
    """The tree in brackets."""
    return parsed.brackets(min_confidence)


def as_json(parsed: "ParsedSentence", source: dict[str, Any], min_confidence: float = 0.0) -> str:
    """A JSON object with leaves, brackets, all spans, their confidences and split scores, and the characters of leaves
    and constituents. Only the brackets are flat where the parser is not sure, and with ``min_confidence`` there are
    ``flat_spans``, which they have.

    Scores have the fewest digits that tell float32 numbers apart: rounded ones would not give the tree.
    """
    scores = parsed.split_scores
    row = source | {
        "leaves": parsed.leaves,
        "brackets": parsed.brackets(min_confidence),
        "spans": parsed.tree.spans,
        "confidences": [round(value, 4) for value in parsed.confidences.tolist()],
        "confidence": round(parsed.confidence, 4),
        "split_scores": None if scores is None else [float(str(score)) for score in scores],
        "leaf_offsets": parsed.offsets,
        "span_offsets": parsed.span_offsets,
    }
    if min_confidence:
        row["flat_spans"] = parsed.flat(min_confidence).spans
    return json.dumps(row, ensure_ascii=False)


def as_drawing(parsed: "ParsedSentence", source: dict[str, Any], min_confidence: float = 0.0) -> str:
    """The drawing of the tree, then its brackets."""
    return f"{parsed.draw(min_confidence)}\n\n{parsed.brackets(min_confidence)}\n"


FORMATS = {"brackets": as_brackets, "jsonl": as_json, "pretty": as_drawing}


def as_lines(texts: list["Text"], parsed: list[list["ParsedSentence"]], form: str, min_confidence: float = 0.0) -> str:
    """The sentences of texts in one of the formats, each with its line end; an empty line for a blank text."""
    write = FORMATS[form]
    rows = (
        row
        for text, sentences in zip(texts, parsed, strict=True)
        for row in ([write(sentence, text.source, min_confidence) for sentence in sentences] or [""])
    )
    return "".join(f"{row}\n" for row in rows)
