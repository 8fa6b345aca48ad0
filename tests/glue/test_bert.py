"""A BERT made like a Fast-R2D2 model, from masked words to fine-tuning."""

import json

import pretrain_bert
import pytest
import run_glue
from pretrain_bert import num_parameters, peer_config, with_ends
from transformers import AutoTokenizer, BertModel

from glue.tasks import find_task
from glue.training import GlueOptions, load_model_and_tokenizer


@pytest.fixture(scope="module")
def corpus(glue, tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "lines.txt"
    lines = (glue / "SST-2" / "train.tsv").read_text().splitlines()[1:]
    path.write_text("\n\n".join(line.split("\t")[0] for line in lines) + "\n")
    return path


def pretrain(checkpoint, corpus, output, *more: str) -> None:
    pretrain_bert.main(
        ["--like", str(checkpoint), "--corpus", str(corpus), "--output_dir", str(output), "--use_cpu"]
        + ["--num_hidden_layers", "2", "--per_device_train_batch_size", "32", "--disable_tqdm", "1"]
        + ["--learning_rate", "1e-2", "--warmup_steps", "2", "--save_steps", "6", "--max_steps", "12", *more]
    )


def test_both_ends_are_there_and_pairs_have_two_types(checkpoint):
    tokenizer = with_ends(AutoTokenizer.from_pretrained(checkpoint))
    pair = tokenizer("the film", "was dull")
    assert tokenizer.convert_ids_to_tokens(pair["input_ids"]) == "[CLS] the film [EOS] was dull [EOS]".split()
    assert pair["token_type_ids"] == [0, 0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("size", [9_000, 100_000, 4_000_000])
def test_the_narrowest_bert_has_at_least_as_many_parameters(checkpoint, size):
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    config = peer_config(size, 2, tokenizer, 64)
    assert num_parameters(config) == sum(p.numel() for p in BertModel(config, add_pooling_layer=False).parameters())
    assert num_parameters(config) >= size
    config.hidden_size, config.intermediate_size = config.hidden_size - 8, config.intermediate_size - 32
    assert not config.hidden_size or num_parameters(config) < size


def test_blank_lines_are_no_text(checkpoint, corpus, tmp_path):
    tokenizer = with_ends(AutoTokenizer.from_pretrained(checkpoint))
    settings = pretrain_bert.PeerArguments(str(tmp_path))
    options = pretrain_bert.PeerOptions(str(checkpoint), [str(corpus)])
    trainer = pretrain_bert.make_trainer(peer_config(9_000, 1, tokenizer, 64), tokenizer, options, settings)
    assert min(trainer.train_dataset["length"]) > 2 < len(trainer.train_dataset)


@pytest.mark.slow
def test_a_bert_learns_masked_words_goes_on_and_is_fine_tuned(checkpoint, corpus, glue, tmp_path, capsys):
    short = ["--max_length", "8"]  # fine-tuning has longer rows, which are cut to what the model can take
    pretrain(checkpoint, corpus, tmp_path / "bert", *short)
    pretrain(checkpoint, corpus, tmp_path / "bert", *short, "--max_steps", "60", "--resume_from_checkpoint", "true")
    history = json.loads((tmp_path / "bert" / "checkpoint-60" / "trainer_state.json").read_text())
    assert history["global_step"] == 60 and "in the other model" in capsys.readouterr().out
    with pytest.raises(ValueError, match="holds a finished model already"):
        pretrain(checkpoint, corpus, tmp_path / "bert", *short)
    run_glue.main(
        ["--tasks", "SST-2", "--data", str(glue), "--model", str(tmp_path / "bert" / "model"), "--use_cpu"]
        + ["--output_dir", str(tmp_path / "glue"), "--learning_rate", "1e-2", "--per_device_train_batch_size", "8"]
        + ["--num_train_epochs", "4", "--disable_tqdm", "1"]
    )
    assert "| SST-2 | dev |" in capsys.readouterr().out
    result = json.loads((tmp_path / "glue" / "SST-2" / "results.json").read_text())
    assert result["chosen_by"] == "dev_accuracy" and result["best"]["dev_accuracy"] > 0.8
    card = (tmp_path / "glue" / "SST-2" / "model" / "README.md").read_text()
    assert "A bert model" in card and "forced" not in card and "Loss weights" not in card
    options = GlueOptions(["SST-2"], model=str(tmp_path / "bert" / "model"), lm_loss_weight=0.5)
    with pytest.raises(ValueError, match="a 'bert' model has one loss"):
        load_model_and_tokenizer(find_task("SST-2"), options)
