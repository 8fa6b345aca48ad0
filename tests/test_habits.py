"""What users of transformers and PEFT do with any model works with these: options of the call and of the
configuration, groups of parameters, and adapters that train, merge and come back."""

import pytest
import torch
from accelerate import cpu_offload
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, Trainer, TrainingArguments, pipeline

from modeling_fast_r2d2 import (
    FastR2D2ForConstituencyParsing,
    FastR2D2ForPairClassification,
    FastR2D2ForPreTraining,
    FastR2D2ForSequenceClassification,
    FastR2D2Model,
    TreeParser,
    bundled_checkpoint,
    parameter_groups,
)

ENCODERS = [FastR2D2Model, FastR2D2ForPreTraining, FastR2D2ForSequenceClassification, FastR2D2ForPairClassification]
CLASSES = [*ENCODERS, FastR2D2ForConstituencyParsing]
ASKED = {"output_hidden_states": True, "output_attentions": True, "return_dict": False}
# What LoRA is put on: the four products of a composition layer.
COMPOSITION_LAYERS = ["query_key_value", "attention_output", "intermediate", "output"]
HEADS = {"SEQ_CLS": FastR2D2ForSequenceClassification, "FEATURE_EXTRACTION": FastR2D2Model}


def inputs_for(model_class, batch) -> dict[str, torch.Tensor]:
    if model_class is not FastR2D2ForPairClassification:
        return batch
    return {name: torch.stack([tensor, tensor.flip(0)], dim=1) for name, tensor in batch.items()}


@pytest.mark.parametrize("model_class", CLASSES)
def test_common_options_are_accepted_in_the_call_and_in_the_configuration(model_class, tiny_config, a_batch, tmp_path):
    model, inputs = model_class(tiny_config).eval(), inputs_for(model_class, a_batch)
    plain = model(**inputs)
    called = model(**inputs, **ASKED)
    assert type(called) is tuple
    model.save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path, **ASKED)
    configured = model_class.from_pretrained(tmp_path, config=config).eval()(**inputs)
    assert type(configured) is tuple
    torch.testing.assert_close(tree_leaves(configured), tree_leaves(called))
    as_dict = model(**inputs, output_hidden_states=True, output_attentions=True)
    torch.testing.assert_close(tree_leaves(as_dict.to_tuple()), tree_leaves(called))
    assert as_dict.attentions is None and plain.hidden_states is None
    without = [value for name, value in as_dict.items() if name != "hidden_states"]
    torch.testing.assert_close(without, list(plain.values()))
    assert (as_dict.hidden_states is None) == (model_class is FastR2D2ForConstituencyParsing)


@pytest.mark.parametrize("model_class", ENCODERS)
@pytest.mark.parametrize("training", [False, True])
def test_hidden_states_are_the_tokens_and_all_nodes_and_have_gradients(model_class, training, tiny_config, a_batch):
    model, inputs = model_class(tiny_config).train(training), inputs_for(model_class, a_batch)
    if "Classification" in model_class.__name__:
        inputs = inputs | {"labels": torch.tensor([0, 1, 1, 0, 1])}
    output = model(**inputs, output_hidden_states=True)
    tokens, nodes = output.hidden_states
    is_token = inputs["attention_mask"].bool().view(-1, 9)
    embeddings = model.base_model.embeddings(inputs["input_ids"].view(-1, 9))
    torch.testing.assert_close(tokens, embeddings.masked_fill(~is_token[..., None], 0))
    torch.testing.assert_close(nodes[:, :9], tokens)
    tokens.retain_grad()
    nodes.retain_grad()
    if "last_hidden_state" in output:
        assert output.last_hidden_state is nodes
        nodes[0, 9:].sin().sum().backward()  # a plain sum of normed vectors is 0
        assert nodes.grad is not None
    else:
        output.logits.sum().backward()
    assert tokens.grad is not None and tokens.grad.abs().sum() > 0


def test_tuples_in_the_configuration_leave_our_own_tools_alone(tokenizer):
    model = FastR2D2Model.from_pretrained(bundled_checkpoint(), **ASKED).eval()
    plain = FastR2D2Model.from_pretrained(bundled_checkpoint()).eval()
    text = "The old man bought a new car"
    assert (model.encode(text) == plain.encode(text)).all()
    assert [node.span for node in model.constituents(text)] == [node.span for node in plain.constituents(text)]
    for method in ("parser", "chart"):
        ours, theirs = (TreeParser(one, tokenizer, method, with_vectors=True)([text])[0] for one in (model, plain))
        assert ours.tree == theirs.tree
        [ours, theirs] = (pipeline("constituency-parsing", model=one, tokenizer=tokenizer) for one in (model, plain))
        assert ours(text, method=method) == theirs(text, method=method)


def test_trainer_evaluates_a_model_that_gives_hidden_states(tiny_config, tmp_path):
    tiny_config.output_hidden_states = True
    rows = [{"input_ids": list(range(20, 20 + n)), "labels": n % 2} for n in (3, 5, 4, 7)]
    arguments = TrainingArguments(str(tmp_path), per_device_eval_batch_size=1, use_cpu=True, report_to="none")
    trainer = Trainer(FastR2D2ForSequenceClassification(tiny_config), arguments)
    assert trainer.predict(rows).predictions.shape == (4, 2)


@pytest.mark.parametrize("task_type", HEADS)
@pytest.mark.parametrize("target_modules", [COMPOSITION_LAYERS, "all-linear"])
def test_adapters_train_merge_and_come_back(task_type, target_modules, tiny_config, a_batch, tmp_path):
    peft = pytest.importorskip("peft")
    base = HEADS[task_type](tiny_config)
    base.save_pretrained(tmp_path / "base")
    config = peft.LoraConfig(task_type=task_type, target_modules=target_modules, r=2, init_lora_weights=False)
    model = peft.get_peft_model(base, config)
    before = result_of(model, a_batch)
    train(model, task_type, a_batch)
    after = result_of(model, a_batch)
    assert (after - before).abs().max() > 1e-3
    model.save_pretrained(tmp_path / "adapter")
    again = HEADS[task_type].from_pretrained(tmp_path / "base")
    loaded = peft.PeftModel.from_pretrained(again, tmp_path / "adapter")
    torch.testing.assert_close(result_of(loaded, a_batch), after)
    merged = model.merge_and_unload()
    torch.testing.assert_close(result_of(merged, a_batch), after, rtol=1e-4, atol=1e-4)
    merged.save_pretrained(tmp_path / "merged")
    reloaded = HEADS[task_type].from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(result_of(reloaded, a_batch), result_of(merged, a_batch), rtol=1e-6, atol=1e-6)


def result_of(model, batch) -> torch.Tensor:
    with torch.no_grad():
        output = model.eval()(**batch, encoding="chart")
    return output.logits if "logits" in output else output.pooler_output


def train(model, task_type: str, batch) -> None:
    frozen = {name: value.clone() for name, value in model.named_parameters() if not value.requires_grad}
    optimizer = torch.optim.Adam([value for value in model.parameters() if value.requires_grad], lr=0.05)
    labels = torch.tensor([0, 1, 1, 0, 1])
    for _ in range(3):
        model.train()
        if task_type == "SEQ_CLS":
            loss = model(**batch, labels=labels).loss
        else:
            loss = model(**batch).pooler_output[:, 0].square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    parameters = dict(model.named_parameters())
    assert all(torch.equal(parameters[name], value) for name, value in frozen.items())


def test_a_parser_says_that_it_has_nothing_to_checkpoint(tiny_config):
    with pytest.raises(ValueError, match="does not support activation checkpointing"):
        FastR2D2ForConstituencyParsing(tiny_config).gradient_checkpointing_enable()


@pytest.mark.parametrize("model_class", [FastR2D2Model, FastR2D2ForPreTraining, FastR2D2ForConstituencyParsing])
def test_weights_may_wait_elsewhere_until_they_are_used(tiny_config, a_batch, model_class):
    model = model_class(tiny_config).eval()
    with torch.no_grad():
        expected = model(**a_batch)
        cpu_offload(model)
        assert all(weight.is_meta for weight in model.parameters())
        found = model(**a_batch)
    for name in expected.keys() & {"split_scores", "pooler_output", "loss"}:
        torch.testing.assert_close(found[name], expected[name])


def test_a_tree_parser_takes_a_model_whose_weights_wait_elsewhere():
    parser = TreeParser.from_pretrained(bundled_checkpoint(), with_vectors=True)
    [expected], vector = parser(["The old man sold his house."]), parser.model.encode("A cat sleeps")
    cpu_offload(parser.model)
    [found] = parser(["The old man sold his house."])
    torch.testing.assert_close(torch.from_numpy(parser.model.encode("A cat sleeps")), torch.from_numpy(vector))
    assert found.tree == expected.tree
    torch.testing.assert_close(torch.from_numpy(found.confidences), torch.from_numpy(expected.confidences))
    torch.testing.assert_close(torch.from_numpy(found.vector), torch.from_numpy(expected.vector))


@pytest.mark.parametrize("weight_decay", [0.1, 0.0])
@pytest.mark.parametrize("model_class", CLASSES)
def test_every_parameter_has_its_group(tiny_config, model_class, weight_decay):
    model = model_class(tiny_config)
    wrapped = torch.nn.ModuleDict({"module": model})  # as data-parallel training and adapters wrap it
    groups = parameter_groups(wrapped, 0.5, 0.25, weight_decay)
    place = {id(parameter): group for group in groups for parameter in group["params"]}
    assert len(place) == sum(len(group["params"]) for group in groups)
    for name, parameter in model.named_parameters():
        if name.endswith("parser.score.bias"):  # no gradient but rounding errors
            assert id(parameter) not in place
            continue
        group = place.pop(id(parameter))
        assert group["lr"] == (0.25 if "parser." in name else 0.5)
        assert group["name"] == ("parser" if "parser." in name else "encoder")
        assert group["weight_decay"] == (0 if "bias" in name else weight_decay)
    assert not place
