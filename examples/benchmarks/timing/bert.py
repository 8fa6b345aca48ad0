"""The BERT that we compare with: as torch runs it, and with the matrix products of our models.

On a CPU, torch may compute float32 products with a library that leaves half of the processor unused, while our models
call oneDNN (`modeling_fast_r2d2.cpu_linear`). That is a merit of the library, not of the model. So a fair BERT calls
oneDNN, too.
"""

import copy
from functools import partial

from torch import Tensor, nn
from transformers import BertConfig, BertModel

from modeling_fast_r2d2 import FastR2D2Model
from modeling_fast_r2d2.cpu_linear import linear


def make_bert(times: int, model: FastR2D2Model) -> BertModel:
    """A BERT of transformers with random weights, of our model's size but with ``times`` as many layers."""
    config = model.config
    bert_config = BertConfig(
        vocab_size=config.vocab_size, hidden_size=config.hidden_size, num_attention_heads=config.num_attention_heads,
        intermediate_size=config.intermediate_size, num_hidden_layers=times * config.num_hidden_layers,
        attn_implementation="sdpa",
    )  # fmt: skip
    return BertModel(bert_config, add_pooling_layer=False).eval().to(model.device, model.dtype)


def on_our_products(bert: BertModel) -> BertModel:
    """The same BERT for evaluation, with its linear layers computed by `modeling_fast_r2d2.cpu_linear.linear`.

    GELU is part of the product before it, as in our models. Both BERTs share their weights.
    """
    weights = {id(weight): weight for weight in bert.parameters()}
    ours = copy.deepcopy(bert, weights)  # what is in `weights` is not copied
    for layer in ours.modules():
        if isinstance(layer, nn.Linear):
            layer.forward = partial(_linear, layer)
    for layer in ours.encoder.layer:
        layer.intermediate.dense.forward = partial(_linear, layer.intermediate.dense, gelu=True)
        layer.intermediate.intermediate_act_fn = nn.Identity()
    return ours


def _linear(layer: nn.Linear, inputs: Tensor, gelu: bool = False) -> Tensor:
    return linear(inputs, layer.weight, layer.bias, gelu)
