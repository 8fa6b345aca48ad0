"""Several parsers into one: what teachers say, and a student that learns it."""

import itertools
import re

import pytest
import torch
from safetensors.torch import load_file

import distill
from distill import DistillationOptions
from modeling_fast_r2d2 import BinaryTree, FastR2D2ForConstituencyParsing, FastR2D2ForPreTraining, bundled_checkpoint
from modeling_fast_r2d2.grammar_induction.consensus import given_posteriors
from modeling_fast_r2d2.parsing.chart_probabilities import chart_probabilities
from modeling_fast_r2d2.parsing.tree_parser import TreeParser
from pretraining.subject_clauses import ClausesInSubjects
from pretraining.substitution import Substitution
from pretraining.teachers import FileTeacher, ParserTeacher, consensus, make_teachers
from tokenization_fast_r2d2 import train_tokenizer
from tokenization_fast_r2d2.reading import sentences_to_parse

TEXTS = ["the old man , who sleeps , saw a cat .", "unbelievable !", "he said ( yet ) that it rains"]


def read(tokenizer):
    return sentences_to_parse(tokenizer, TEXTS, set_marks_aside=True)


def trees_of(best):
    return [BinaryTree.from_spans(spans) for spans in best.spans]


@pytest.mark.parametrize("method", ["parser", "heuristic"])
def test_one_teacher_alone_gives_its_trees(model, tokenizer, method):
    """The best tree of the parser's posteriors is often the parser's own; heuristic trees are certain."""
    parser = TreeParser(model, tokenizer, method, punctuation="aside", bounds_bonus=100.0)
    sentences = read(tokenizer)
    found = trees_of(consensus([ParserTeacher(parser)], [1.0], sentences, [0, 1, 2]))
    of_pieces, _, _ = parser.run(parser.read(TEXTS))
    for tree, sentence, row in zip(found, sentences, of_pieces, strict=True):
        assert tree.num_leaves == len(sentence.words)
        if method != "parser":
            assert tree == sentence.word_tree(row)
    assert (0, 2) in found[0].spans and {(0, 4), (3, 7)} & set(found[0].spans)  # marks are where constituents end


def test_a_teacher_may_have_other_pieces(model, tokenizer):
    other = train_tokenizer(TEXTS * 2, 60, show_progress=False)
    parser = TreeParser(FastR2D2ForPreTraining(model.config), other, punctuation="aside")
    posteriors = ParserTeacher(parser)(read(tokenizer), [0, 1, 2])
    assert posteriors.shape == (3, 8, 9)
    assert posteriors[0].sum().item() == pytest.approx(7, abs=1e-4)  # a tree over 8 words has 7 constituents
    assert posteriors[1].sum() == 0 and posteriors[2].sum().item() == pytest.approx(5, abs=1e-4)


def test_a_chart_is_a_teacher_with_its_probabilities(model, tokenizer):
    teacher = ParserTeacher(TreeParser(model, tokenizer, "chart", punctuation="aside"))
    posteriors = teacher(read(tokenizer), [0, 1, 2])
    assert posteriors.shape == (3, 8, 9) and posteriors.sum((1, 2)).tolist() == pytest.approx([7, 0, 5], abs=0.05)
    assert ((posteriors > 0.01) & (posteriors < 0.99)).any()
    for row, text in enumerate(TEXTS):
        found = chart_probabilities(teacher.parser, text).probabilities
        for (first, last), probability in found.items():
            assert posteriors[row, first, last - first + 1].item() == pytest.approx(probability, abs=1e-4)
        assert (posteriors[row] > 0).sum() == sum(probability > 0 for probability in found.values())


def test_trees_of_a_file_are_teachers(tokenizer, tmp_path):
    lines = ["((the (old man)) ((who sleeps) (saw (a cat))))", "unbelievable", "(he (said (yet (that (it rains)))))"]
    (tmp_path / "trees.txt").write_text("\n".join(lines) + "\n")
    teacher = FileTeacher(tmp_path / "trees.txt", 3)
    found = consensus([teacher], [1.0], [read(tokenizer)[row] for row in (2, 0)], [2, 0])
    assert [tree.brackets() for tree in trees_of(found)] == [
        "(0 (1 (2 (3 (4 5)))))", "((0 (1 2)) ((3 4) (5 (6 7))))",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="has 3 trees, the text 4 lines"):
        FileTeacher(tmp_path / "trees.txt", 4)
    with pytest.raises(ValueError, match="line 2: a tree over 1 leaves, the text has 8 words"):
        teacher(read(tokenizer)[:1], [1])


def test_posteriors_are_averaged(tokenizer):
    trees = ["(0 (1 2))", "((0 1) 2)", "((0 1) 2)"]
    [sentence] = sentences_to_parse(tokenizer, ["a b c"])
    spans = [BinaryTree.from_brackets(tree)[0].spans for tree in trees]
    posteriors = [given_posteriors([dict.fromkeys(of_tree, 1.0)], 3) for of_tree in spans]
    teachers = [lambda sentences, rows, found=found: found for found in posteriors]
    _, spans, [mean] = consensus(teachers, [1.0, 1.0, 1.0], [sentence], [0])
    assert spans.tolist() == [[[0, 1], [0, 2]]] and mean.shape == (3, 4)
    assert (mean[0, 2].item(), mean[1, 2].item(), mean[0, 3].item()) == pytest.approx((2 / 3, 1 / 3, 1))
    assert consensus(teachers, [2.5, 1.0, 1.0], [sentence], [0]).spans.tolist() == [[[0, 2], [1, 2]]]


def test_minimum_risk_is_parser_and_chart_together(tmp_path):
    (tmp_path / "trees.txt").write_text("(a b)\n")
    options = DistillationOptions(
        ["fast-r2d2-tiny", str(tmp_path / "trees.txt"), "fast-r2d2-tiny"], "s", ["c"], weights=[3.0, 1.0, 2.0],
        methods=["minimum_risk", "parser", "chart"],
    )  # fmt: skip
    teachers, weights = make_teachers(options.teachers, options.methods, options.weights, None, 1)
    assert weights == [1.5, 1.5, 1.0, 2.0]
    assert [getattr(teacher, "parser", None) and teacher.parser.method for teacher in teachers] == [
        "parser", "chart", None, "chart",
    ]  # fmt: skip
    whole = TreeParser.from_pretrained(method="minimum_risk", punctuation="aside")
    sentences = whole.read(TEXTS)
    of_pieces, _, _ = whole.run(sentences)
    found = trees_of(consensus(teachers[:2], weights[:2], sentences, [0, 1, 2]))
    assert found == [sentence.word_tree(row) for sentence, row in zip(sentences, of_pieces, strict=True)]


@pytest.mark.parametrize("given, message", [
    ({"weights": [1.0]}, "one number per teacher, 2"), ({"weights": [1.0, 0.0]}, "above 0"),
    ({"weights": [1.0, float("nan")]}, "above 0"),
    ({"substitutes": -1}, "--substitutes must be >= 0, got -1"),
    ({"methods": ["chart"]}, "--methods must have one method per teacher, 2, got .'chart'."),
])  # fmt: skip
def test_every_teacher_has_a_weight_and_a_method(given, message):
    assert DistillationOptions(["one", "two"], "one", ["text.txt"]).methods == ["parser", "parser"]
    with pytest.raises(ValueError, match=message):
        DistillationOptions(["one", "two"], "one", ["text.txt"], **given)


def test_only_the_parser_may_be_another():
    with pytest.raises(ValueError, match="begin with parser_"):
        DistillationOptions(["one"], "one", ["text.txt"], config_overrides="parser_hidden_size=8,hidden_size=8")
    source = bundled_checkpoint()
    same = distill.load_student(source, "parser_dropout_prob=0.5")
    given, smaller = (distill.load_student(source, overrides) for overrides in (None, "parser_hidden_size=8"))
    assert torch.equal(same.parser.score.weight, given.parser.score.weight)
    assert same.config.parser_dropout_prob == 0.5 and smaller.parser.score.in_features == 8


def test_a_student_without_an_encoder_is_refused_before_the_work(tokenizer, tmp_path):
    FastR2D2ForConstituencyParsing.from_pretrained(bundled_checkpoint()).save_pretrained(tmp_path / "parser")
    tokenizer.save_pretrained(tmp_path / "parser")
    (tmp_path / "lines.txt").write_text("the old man\n")
    options = ["--student", str(tmp_path / "parser"), "--teachers", "fast-r2d2-tiny", "--use_cpu"]
    with pytest.raises(ValueError, match="lacks .* weights of a FastR2D2ForPreTraining"):
        distill.main([*options, "--corpus", str(tmp_path / "lines.txt"), "--output_dir", str(tmp_path / "out")])
    assert not list((tmp_path / "out").glob("checkpoint-*"))


@pytest.mark.parametrize(("fields", "message"), [
    ({"punctuation": "keep"}, "sees punctuation"), ({"architectures": ["FastR2D2ForSequenceClassification"]}, "head"),
])  # fmt: skip
def test_a_student_that_would_become_another_model_is_refused(model, fields, message):
    distill.check_student(model.config)
    model.config.update(fields)
    with pytest.raises(ValueError, match=message):
        distill.check_student(model.config)


@pytest.mark.parametrize("overrides", [None, "parser_hidden_size=8"])
def test_a_student_is_saved_with_its_parser_and_the_given_encoder(model, tokenizer, overrides, tmp_path):
    source = bundled_checkpoint()
    student = distill.load_student(source, overrides)
    torch.nn.init.constant_(student.parser.score.bias, 3.0)
    distill.save_student(student, tokenizer, model, tmp_path)
    saved, given = load_file(tmp_path / "model.safetensors"), load_file(f"{source}/model.safetensors")
    assert saved["model.parser.score.bias"].item() == 3.0 and saved.keys() == given.keys()
    assert all(torch.equal(saved[name], given[name]) for name in given if "parser" not in name)
    assert TreeParser.from_pretrained(str(tmp_path))(["the old man saw a cat"])[0].tree.num_leaves == 6


def test_labels_are_spans_of_pieces(model, tokenizer):
    teacher = ParserTeacher(TreeParser(model, tokenizer, punctuation="aside"))
    collate = distill.CollatorWithTrees(tokenizer, [teacher], [1.0], model.model)
    features = [{"text": text, "row": row} for row, text in enumerate(TEXTS)]
    batch = collate(features)
    sentence = read(tokenizer)[0]
    learnt = [k for k, (first, _) in enumerate(batch["labels"][0].tolist()) if first >= 0]
    assert learnt == sentence.word_split_points and [0, len(sentence.input_ids) - 1] in batch["labels"][0].tolist()
    assert (batch["labels"][1] == -1).all() and batch["labels"].shape == (*batch["input_ids"][:, 1:].shape, 2)
    best = collate.best(TEXTS, [0, 1, 2])
    starts = [[sentence.input_ids[0]] + [sentence.input_ids[split + 1] for split in sentence.word_split_points]
              for sentence in best.sentences]  # fmt: skip
    assert [row[: len(own)] for row, own in zip(best.first_pieces.tolist(), starts, strict=True)] == starts
    collate.first_words = lambda spans, posteriors, pieces: spans.flip(1)
    collate.relative_clauses = lambda spans, pieces: spans.roll(1, 1)
    last, *others = map(tuple, best.spans[0].flip(0).tolist())
    assert collate.trees(best)[0].spans == [others[-1], last, *others[:-1]]
    collate.first_words = None
    collate.further = [lambda trees, random: trees[:1]]
    assert collate(features)["labels"][[0, 3]].equal(batch["labels"][[0, 0]])


def test_what_changes_trees_and_makes_sentences_is_learnt_from_a_sample(model, tokenizer):
    collate = distill.CollatorWithTrees(tokenizer, [ParserTeacher(TreeParser(model, tokenizer))], [1.0], model.model)
    settings, kinds = distill.DistillationArguments("out", use_cpu=True), [Substitution, ClausesInSubjects]
    for substitutes, first_words, makers in ((1, True, kinds), (1, False, kinds[:1]), (0, True, [])):
        collate.first_words, collate.further = None, []
        options = DistillationOptions(["t"], "s", ["c"], substitutes=substitutes, first_words=first_words)
        distill.learn_from_sample(collate, distill.make_dataset(TEXTS, options, settings), options)
        assert list(map(type, collate.further)) == makers and (collate.first_words is not None) == first_words


@pytest.mark.parametrize(("coordinators", "found"), [
    (None, [(0, 3), (1, 2), (1, 3)]), (["and"], [(0, 2), (1, 2), (0, 3)])
])  # fmt: skip
def test_what_the_coordinators_of_the_tokenizer_join_is_put_together(tokenizer, coordinators, found, monkeypatch):
    monkeypatch.setitem(tokenizer.init_kwargs, "coordinators", coordinators)
    given = given_posteriors([{(0, 3): 1.0, (1, 2): 1.0, (1, 3): 1.0}], 4)  # (John ((And Mary) slept))
    collate = distill.CollatorWithTrees(tokenizer, [lambda sentences, rows: given], [1.0], None)
    assert [*map(tuple, collate.best(["John And Mary slept ."], [0]).spans[0].tolist())] == found


def test_length_is_counted_in_words_or_in_characters_of_scripts_without_blanks():
    lines = ["土佐の侍で大塚と云う者。", "a b c", "a", "侍", "a b c d e f g h i j k l m n", "侍と a", "Yes!"]
    options = DistillationOptions(["t"], "s", ["c"], max_words=11)
    rows = distill.make_dataset(lines, options, distill.DistillationArguments("out", use_cpu=True))
    assert sorted(rows["row"]) == [0, 1, 5] and [distill.count_words(line) for line in lines] == [11, 3, 1, 1, 14, 3, 1]


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    command = ["--teachers", "t", "--student", "s", "--corpus", "c", "--use_cpu", "--output_dir", str(tmp_path)]
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match="is not empty; give another --output_dir, or go on"):
        distill.main(command)
    (tmp_path / "model").mkdir()
    for more in ([], ["--resume_from_checkpoint", "true"]):
        with pytest.raises(ValueError, match="holds a finished model already; give another --output_dir"):
            distill.main([*command, *more])
    (tmp_path / "model").rmdir()
    assert (tmp_path / "thesis.tex").read_text() == "mine" and not list(tmp_path.glob("checkpoint*"))


@pytest.mark.slow
def test_a_student_learns_chains_from_a_file_and_goes_on(model, tmp_path, capsys, monkeypatch):
    texts = [" ".join("the old man saw a big cat".split()[: 2 + number % 6]) for number in range(48)]
    (tmp_path / "text.txt").write_text("\n".join(texts) + "\n")
    chain = [(0, last) for last in range(1, 8)]
    chains = [BinaryTree(tuple(chain[: len(text.split()) - 1])).brackets(text.split()) for text in texts]
    (tmp_path / "chains.txt").write_text("\n".join(chains) + "\n")
    command = [
        "--teachers", str(tmp_path / "chains.txt"), "--student", bundled_checkpoint(), "--use_cpu", "--learning_rate",
        "0.01", "--per_device_train_batch_size", "8", "--num_train_epochs", "5", "--save_steps", "10", "--warmup_steps",
        "1", "--corpus", str(tmp_path / "text.txt"), "--disable_tqdm", "true", "--config_overrides",
        "parser_hidden_size=64,parser_num_layers=1", "--substitutes", "1", "--first_words", "true",
    ]  # fmt: skip
    distill.main([*command, "--output_dir", str(tmp_path / "whole")])
    assert re.search("the model is in .*whole/model", capsys.readouterr().out)
    [parsed] = TreeParser.from_pretrained(str(tmp_path / "whole" / "model"))(["the old man saw a big cat"])
    assert parsed.tree.brackets(parsed.leaves) == "((((((the old) man) saw) a) big) cat)"
    student = FastR2D2ForPreTraining.from_pretrained(tmp_path / "whole" / "model")  # its encoder is still the given one
    assert student.model.parser.dense.in_features == 128 and student.config.parser_num_layers == 1
    assert torch.equal(student.model.embeddings.weight, model.model.embeddings.weight)
    steps, step = itertools.count(1), distill.Trainer.training_step

    def stop(self, *arguments, **keywords):
        if next(steps) > 15:
            raise KeyboardInterrupt
        return step(self, *arguments, **keywords)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(distill.Trainer, "training_step", stop)
        distill.main([*command, "--output_dir", str(tmp_path / "cut")])
    resumed = [*command, "--output_dir", str(tmp_path / "cut"), "--resume_from_checkpoint", "true"]
    with pytest.raises(ValueError, match="checkpoint-10 is of a parser of another size; give the same --student"):
        distill.main([*resumed, "--config_overrides", "parser_hidden_size=32"])
    distill.main(resumed)
    one, other = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "cut"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
