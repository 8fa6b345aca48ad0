"""Parameters by learning rate: encoder and parser are trained together at rates far apart (paper, Section 4.1)."""

from typing import Any

from torch import nn


def parameter_groups(
    model: nn.Module, learning_rate: float = 5e-5, parser_learning_rate: float = 1e-2, weight_decay: float = 0.01
) -> list[dict]:
    """Groups for any torch optimizer, such as ``torch.optim.AdamW(parameter_groups(model))``; `Trainer` takes that as
    ``optimizers=(optimizer, None)``. The defaults are the paper's rates.

    Args:
        model: any Fast-R2D2 model.
        learning_rate: of the encoder, heads included.
        parser_learning_rate: of the parser.
        weight_decay: of all but biases.

    Returns:
        Dicts with ``params``, ``lr``, ``weight_decay`` and ``name``, which is ``"encoder"`` or ``"parser"``.
    """
    rates = {"encoder": learning_rate, "parser": parser_learning_rate}
    groups: dict[tuple[str, float], dict[str, Any]] = {
        (name, decay): {"params": [], "lr": rate, "weight_decay": decay, "name": name}
        for name, rate in rates.items()
        for decay in (weight_decay, 0.0)
    }
    for name, parameter in model.named_parameters():
        # Trees and losses do not change if all scores of a sentence rise alike. So the gradient of the scores' bias is
        # nothing but rounding errors, and AdamW would turn these into steps of a full learning rate.
        if not name.endswith("parser.score.bias"):
            is_bias = "bias" in name.rpartition(".")[2]  # an LSTM's are bias_ih_l0, ...
            group = "parser" if name.startswith(("parser.", "model.parser.")) else "encoder"
            groups[group, 0.0 if is_bias else weight_decay]["params"].append(parameter)
    return [group for group in groups.values() if group["params"]]
