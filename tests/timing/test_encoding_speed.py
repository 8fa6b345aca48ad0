"""The speed table: what it times, and that it times nothing that is wrong."""

import json
import queue
import re
import shutil
import threading
from types import SimpleNamespace

import encoding_speed
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoTokenizer

from modeling_fast_r2d2 import FastR2D2Model, bundled_checkpoint, cpu_linear
from timing import batch_sizes, check, clock
from timing.batch_sizes import MAX_BATCHES, full_batches
from timing.bert import make_bert, on_our_products
from timing.check import TOLERANCES
from timing.lengths import describe_lengths
from timing.limits import Products, charts_of, compositions_of
from timing.machine import CalledOperations, describe_machine, describe_products
from timing.report import plot, table
from timing.systems import DEFAULT_NAMES, FAIR_BERT, System, default_names, make_systems, pad
from timing.workloads import batches_by_tokens, batches_of, sentences_by_range

LINES = ["the old man bought a new car last year and drove it to the river", "a cat sat", "it rained all day"] * 40


def test_sentences_have_the_lengths_of_their_range():
    tokenizer = AutoTokenizer.from_pretrained(bundled_checkpoint())
    ranges = ((2, 10), (20, 40), (60, 90))
    found = sentences_by_range(LINES, tokenizer, 5, ranges)
    assert list(found) == list(ranges)
    assert all(low <= len(ids) < high for (low, high), rows in found.items() for ids in rows)
    assert found == sentences_by_range(LINES, tokenizer, 5, ranges)
    with pytest.raises(ValueError, match="sentences of 500 to 599 tokens, with neighbours joined, but 5 are needed"):
        sentences_by_range(LINES, tokenizer, 5, ((500, 600),))


@given(lengths=st.lists(st.integers(1, 30), max_size=30), size=st.integers(1, 9), tokens=st.integers(1, 60))
def test_batches_hold_every_sentence_once(lengths, size, tokens):
    sentences = [[number] * length for number, length in enumerate(lengths)]
    by_size, by_tokens = list(batches_of(sentences, size)), list(batches_by_tokens(sentences, tokens))
    for batches in (by_size, by_tokens):
        assert sorted(ids for batch in batches for ids in batch) == sorted(sentences)
    assert all(len(batch) <= size for batch in by_size)
    assert all(len(batch) == 1 or len(batch) * max(map(len, batch)) <= tokens for batch in by_tokens)


def test_every_system_encodes_the_batch(tiny_config):
    batch = [[5, 6, 7, 8], [9, 10], [11, 12, 13]]
    for system in make_systems(DEFAULT_NAMES, FastR2D2Model(tiny_config).eval()):
        assert len(system.run(pad(batch, "cpu"))) == 3 and system.sorts == system.name.endswith("sorted")


@pytest.mark.parametrize("least", [1, 1e12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_fair_bert_gives_what_the_plain_one_gives(tiny_config, dtype, least, monkeypatch):
    """Whether its products are large enough for oneDNN or not."""
    monkeypatch.setattr(cpu_linear, "MIN_MULTIPLICATIONS", least)
    plain = make_bert(3, FastR2D2Model(tiny_config).to(dtype))
    fair = on_our_products(plain)
    inputs = pad([list(range(20, 29)), [30, 31]], "cpu")
    with torch.inference_mode(), CalledOperations() as of_plain:
        expected = plain(**inputs).last_hidden_state
    with torch.inference_mode(), CalledOperations() as of_fair:
        ours = fair(**inputs).last_hidden_state
    is_real = inputs["attention_mask"].bool()
    assert (ours - expected)[is_real].norm() < TOLERANCES[dtype][1] * expected[is_real].norm()
    assert {id(weight) for weight in fair.parameters()} == {id(weight) for weight in plain.parameters()}
    assert of_plain.called.count("mkldnn._linear_pointwise.default") == 0
    linears = 6 * 3 * tiny_config.num_hidden_layers
    is_served = least == 1 and cpu_linear.has_onednn(dtype)
    assert of_fair.called.count("mkldnn._linear_pointwise.default") == (linears if is_served else 0)
    assert of_fair.called.count("aten.gelu.default") == (0 if is_served else of_plain.called.count("aten.gelu.default"))


def test_a_fair_bert_that_is_another_bert_stops_before_any_time_is_taken(tiny_config):
    [fair] = make_systems([FAIR_BERT], FastR2D2Model(tiny_config).eval())
    inputs = pad([[5, 6, 7], [8, 9]], "cpu")
    with torch.inference_mode():
        check.check_same([fair], inputs, torch.float32)
        wrong = System(FAIR_BERT, lambda batch: 1.001 * fair.run(batch), same_as=fair.same_as)
        with pytest.raises(
            ValueError, match="BERT-12L, our products differs from the BERT that it should be, by 1.0e-03"
        ):
            check.check_same([wrong], inputs, torch.float32)


def test_the_machine_names_its_processor_and_the_libraries_of_both_products():
    assert f"{torch.get_num_threads()} threads" in describe_machine("cpu")
    text = describe_products("cpu", torch.float32)
    assert re.fullmatch("products: torch's by .+, ours.+", text)
    assert ("oneDNN" in text) == cpu_linear.has_onednn(torch.float32)
    blas = re.findall(r"BLAS_INFO=(\w+)", torch.__config__.show())
    assert not blas or blas[0].lower() in text.lower()


def test_batches_of_a_given_size_are_full():
    sentences = [[number] for number in range(20)]
    assert full_batches(sentences, 3) == [sentences[3 * number : 3 * number + 3] for number in range(6)]
    assert len(full_batches(sentences, 1)) == MAX_BATCHES and full_batches(sentences, 20) == [sentences]
    with pytest.raises(ValueError, match="from 1 to --sentences, 20, got 21"):
        full_batches(sentences, 21)


def test_products_are_those_of_the_compositions_that_a_model_makes(tiny_config):
    model = FastR2D2Model(tiny_config).double().eval()  # of float64 torch counts all products
    batches = [[list(range(20, 29)), [30, 31]], [[40, 41, 42]]]
    bare = Products(tiny_config, "cpu", torch.float64)
    for encoding, tasks in (("forced", 1), ("chart", 2)):
        made = []
        handle = model.composition.stack.register_forward_pre_hook(lambda _, inputs, made=made: made.append(inputs[1]))
        for batch in batches:
            model(**pad(batch, "cpu"), encoding=encoding)
        handle.remove()
        levels = compositions_of(charts_of(model, batches, encoding))
        assert [children.shape[1] for children in made] == levels
        shared = model.composition.prepare(model.embeddings.weight[:tasks])
        with FlopCounterMode(display=False) as of_products:
            bare.of_levels(levels, tasks)()
        with FlopCounterMode(display=False) as of_model:
            for children in made:
                model.composition.stack(shared, children)
        assert of_products.get_total_flops() == bare.operations(levels, tasks) == of_model.get_total_flops()


def test_products_of_the_parser(tiny_config):
    batches = [[[5, 6, 7, 8], [9, 10]], [[11, 12, 13]]]
    products, size = Products(tiny_config, "cpu", torch.float64), tiny_config.parser_hidden_size
    with FlopCounterMode(display=False) as counter:
        products.of_parser(batches)()
    assert counter.get_total_flops() == products.parser_operations(batches)
    parser = FastR2D2Model(tiny_config).parser
    matrices = [weight for name, weight in parser.backbone.named_parameters() if "weight" in name]
    expected = 2 * 9 * (sum(weight.numel() for weight in matrices) + 2 * size * size)
    assert counter.get_total_flops() == expected


def test_systems_take_turns_and_the_first_round_does_not_count():
    calls = []
    times = clock.take_turns({name: lambda name=name: calls.append(name) for name in "ab"}, 3, "cpu")
    assert calls == list("ab") * 4 and all(0 <= time.least <= time.median <= time.most for time in times.values())


def test_long_runs_need_no_round_that_does_not_count(monkeypatch):
    now, calls = [0.0], []
    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def run(name: str, seconds: float) -> None:
        calls.append(name)
        now[0] += seconds

    functions = {"a": lambda: run("a", clock.LONG_RUN_SECONDS / 2), "b": lambda: run("b", 2 * clock.LONG_RUN_SECONDS)}
    times = clock.take_turns(functions, 2, "cpu")
    assert calls == list("ababa")
    assert (times["a"].median, times["b"].median) == (clock.LONG_RUN_SECONDS / 2, 2 * clock.LONG_RUN_SECONDS)


def test_peak_memory_is_the_most_that_was_seen_beyond_what_was_there_before(monkeypatch):
    resident, seen = [300], queue.Queue()

    def read() -> int:
        value = resident[0]
        if threading.current_thread() is not threading.main_thread():  # the thread that watches the run
            seen.put(value)
        return value

    def run() -> None:
        for resident[0] in (1000, 400):
            while seen.get() != resident[0]:
                pass

    monkeypatch.setattr(clock, "_resident_bytes", read)
    assert clock.peak_memory(run, "cpu") == 700
    assert clock.peak_memory(lambda: None, "cpu") == 0


def test_resident_memory_is_told_in_bytes(tmp_path, monkeypatch):
    (tmp_path / "statm").write_text("500 25 3 1 0 40 0")  # pages of 4,096 bytes, as Linux writes them
    monkeypatch.setattr(clock, "Path", lambda path: tmp_path / "statm")
    assert clock._resident_bytes() == 25 * 4096
    (tmp_path / "statm").unlink()
    assert clock._resident_bytes() == 0


def test_a_wrong_reference_case_stops_before_any_time_is_taken(tmp_path, monkeypatch):
    assert check.check_references("cpu", torch.float32) == 22
    with monkeypatch.context() as context:
        context.setattr(cpu_linear, "MIN_MULTIPLICATIONS", 1)  # all of their small products by oneDNN
        assert check.check_references("cpu", torch.float32) == 22
    shutil.copytree(check.GOLDEN, tmp_path / "golden")
    arrays = tmp_path / "golden" / "cases" / "len10_batch4.safetensors"
    tensors = load_file(arrays)
    tensors["forced_root"][2, 3] += 0.01
    save_file(tensors, arrays)
    monkeypatch.setattr(check, "GOLDEN", tmp_path / "golden")
    monkeypatch.setattr(encoding_speed, "time_ranges", lambda *_: pytest.fail("something was timed"))
    with pytest.raises(ValueError, match="golden case len10_batch4, forced: wrong by .*; no times are given"):
        encoding_speed.main(["--corpus", "any", "--size", "tiny", "--device", "cpu"])


@pytest.mark.slow
def test_the_table_and_its_files(tmp_path, capsys):
    (tmp_path / "corpus.txt").write_text("\n".join(LINES), encoding="utf-8")
    options = "--size tiny --device cpu --sentences 3 --ranges 0 --rounds 1 --lengths 16 32 64 --memory".split()
    options += ["--training_tokens", "20"]
    encoding_speed.main(["--corpus", str(tmp_path / "corpus.txt"), "--output_dir", str(tmp_path / "out"), *options])
    out = capsys.readouterr().out
    assert "22 reference cases are right" in out and "| Fast-R2D2* encoder |" in out and "x products" in out
    results = json.loads((tmp_path / "out" / "speed.json").read_text())
    rows = {row["system"]: row for row in results["ranges"]}
    of_products = {f"products of {name}" for name in ("Fast-R2D2", "Fast-R2D2*")}
    assert set(rows) == {*DEFAULT_NAMES, *of_products}
    assert rows["BERT-12L"]["times_bert"] == 1 and rows["Fast-R2D2"]["times_products"] > 0
    assert {row["shape"] for row in results["lengths"]} == {"balanced", "random", "chain"}
    assert (tmp_path / "out" / "speed.png").read_bytes().startswith(b"\x89PNG")
    assert table(results["ranges"]).count("\n") == 12
    assert rows[FAIR_BERT]["times_fair_bert"] == 1 and rows["Fast-R2D2*"]["times_fair_bert"] > 0
    assert f"the fair BERT is {FAIR_BERT} |" in out and re.search(
        r"\d x fair BERT, [\d.]+ x BERT, [\d.]+ x products", out
    )
    assert results["batch_sizes"] == [] and "milliseconds per batch" not in out
    assert results["training"]["tokens"] <= 20 and "tokens/s" in out
    plot(results, tmp_path / "again.png")


def test_the_lengths_of_one_sentence_alone(tmp_path, capsys):
    (tmp_path / "corpus.txt").write_text("\n".join(LINES), encoding="utf-8")
    options = "--size tiny --device cpu --sentences 3 --ranges --lengths 16 32 64".split()
    encoding_speed.main(["--corpus", str(tmp_path / "corpus.txt"), *options])
    out = capsys.readouterr().out
    assert "BERT" not in out and "least to most" not in out and "balanced tree, s by tokens: 16: " in out


def test_batches_of_few_sentences(tmp_path, capsys):
    (tmp_path / "corpus.txt").write_text("\n".join(LINES), encoding="utf-8")
    command = ["--corpus", str(tmp_path / "corpus.txt"), "--output_dir", str(tmp_path / "out")]
    options = "--size tiny --device cpu --sentences 4 --rounds 1 --ranges --lengths --batch_sizes 1 4".split()
    encoding_speed.main([*command, *options])
    rows = json.loads((tmp_path / "out" / "speed.json").read_text())["batch_sizes"]
    assert [(row["system"], row["batch_size"], row["batches"]) for row in rows] == [
        (system, size, number) for size, number in ((1, 4), (4, 1)) for system in batch_sizes.SYSTEMS
    ]
    assert all(0 < row["least"] <= row["seconds"] <= row["most"] for row in rows)
    assert all(row["times_fair_bert"] == 1 for row in rows if row["system"] == FAIR_BERT)
    out = capsys.readouterr().out
    assert f"by its sentences; the fair BERT is {FAIR_BERT} | 1 | 4 |" in out and "balanced" not in out
    with pytest.raises(SystemExit):
        encoding_speed.main([*command, *options[:-1], "5"])
    assert "--batch_sizes must be from 1 to --sentences, 4, got 5" in capsys.readouterr().err


def test_on_a_gpu_no_bert_has_other_products():
    assert set(DEFAULT_NAMES) - set(default_names("cuda")) == {FAIR_BERT, "BERT-4L, our products"}
    assert default_names("cpu") == list(DEFAULT_NAMES)


def test_a_straight_line_is_found():
    rows = [
        {"shape": "balanced", "tokens": n, "seconds": 0.5 + 0.002 * n, "peak_bytes": 2**20 * n} for n in (1, 2, 5, 9)
    ]
    seconds, memory = describe_lengths(rows).splitlines()
    assert seconds.endswith("0.5 s + 2 s per 1,000 tokens, R² 1.0000")
    assert memory.endswith("MiB + 1e+03 MiB per 1,000 tokens, R² 1.0000")
