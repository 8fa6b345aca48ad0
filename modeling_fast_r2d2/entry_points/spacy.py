"""What spaCy imports for every pipeline, to know the component ``fast_r2d2``: nothing that is heavy.

The component itself is in `modeling_fast_r2d2.parsing.spacy`.
"""

from typing import Any

from spacy.language import Language

DEFAULTS = {
    "checkpoint": "fast-r2d2-small", "method": "parser", "device": "cpu", "batch_tokens": 8192, "vectors": False,
}  # fmt: skip


@Language.factory("fast_r2d2", default_config=DEFAULTS, requires=["doc.sents"])
def make_component(
    nlp: Language, name: str, checkpoint: str, method: str, device: str, batch_tokens: int, vectors: bool
) -> Any:
    """Make the component for spaCy.

    Args:
        checkpoint, method, device, batch_tokens: as for `TreeParser.from_pretrained`, which is called at first use.
        vectors: also keep the vectors of all constituents in the documents.
    """
    from modeling_fast_r2d2.parsing.spacy import FastR2D2Component

    options = {"checkpoint": checkpoint, "method": method, "device": device, "batch_tokens": batch_tokens}
    return FastR2D2Component.from_options(options, vectors)
