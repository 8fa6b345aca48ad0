"""A corpus parsed in shards: by two processes, one of them killed on the way, as by one."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet
from safetensors.numpy import load_file

from fast_r2d2_entry_points.command_line import main
from fast_r2d2_entry_points.command_line.texts import read_texts
from modeling_fast_r2d2.text_files import hold_folder

WORDS = "the old man bought a new car and drove it to the river last year".split()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> list[Path]:
    """150 lines of text, one of them blank, and 50 rows of Parquet."""
    folder, generator = tmp_path_factory.mktemp("corpus"), random.Random(0)
    lines = [" ".join(generator.choices(WORDS, k=generator.randint(1, 20))) for _ in range(200)]
    (folder / "a.txt").write_text("\n".join([*lines[:149], ""]) + "\n", encoding="utf-8")
    parquet.write_table(pyarrow.table({"text": lines[150:]}), folder / "b.parquet")
    return [folder / "a.txt", folder / "b.parquet"]


def arguments(corpus: list[Path], output: Path, *more: str) -> list[str]:
    files = [str(path) for path in corpus]
    return ["parse", "--file", *files, "--output", str(output), "--shard_lines", "7", *more]


def text_of(folder: Path) -> str:
    return "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("0*.txt")))


@pytest.fixture(scope="module")
def by_one(corpus, tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("one")
    main(arguments(corpus, output, "--vectors"))
    return output


def launch(corpus: list[Path], output: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m"]
    options = arguments(corpus, output, "--vectors")
    return subprocess.Popen(
        [*command, "fast_r2d2_entry_points.command_line", *options], stderr=subprocess.PIPE, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def kill_one_process(launcher: subprocess.Popen, output: Path) -> None:
    """As soon as some shards are there."""
    deadline = time.monotonic() + 120
    while len(list(output.glob("0*.manifest.json"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGKILL)


@pytest.mark.slow
def test_two_processes_one_of_them_killed_write_what_one_writes(corpus, by_one, tmp_path):
    first = launch(corpus, tmp_path)
    kill_one_process(first, tmp_path)
    first.communicate()
    assert first.returncode != 0
    finished = {path: path.stat().st_mtime_ns for path in tmp_path.glob("0*.manifest.json")}
    assert 2 <= len(finished) < 29  # of 200 lines in shards of 7
    second = launch(corpus, tmp_path)
    errors = second.communicate()[1]
    assert second.returncode == 0, errors
    assert all(path.stat().st_mtime_ns == before for path, before in finished.items())
    assert text_of(tmp_path) == text_of(by_one) and text_of(by_one).count("\n") == 200
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in by_one.iterdir())
    for path in by_one.glob("*.safetensors"):
        assert (load_file(tmp_path / path.name)["vectors"] == load_file(path)["vectors"]).all()


def test_shards_hold_what_a_stream_of_the_same_lines_gives(corpus, by_one, capsys):
    main(["parse", "--file", str(corpus[0])])
    assert text_of(by_one).splitlines()[:150] == capsys.readouterr().out.splitlines()
    vectors = load_file(by_one / "000000.safetensors")["vectors"]
    assert vectors.shape == (7, 128) and vectors.dtype == "float32"


def test_shards_that_were_emptied_cut_changed_or_removed_are_parsed_again(corpus, by_one, capsys):
    whole, vectors = text_of(by_one), (by_one / "000004.safetensors").read_bytes()
    (by_one / "000000.txt").write_text("")
    (by_one / "000001.txt").write_text((by_one / "000001.txt").read_text()[:-20])
    (by_one / "000002.txt").write_text((by_one / "000002.txt").read_text().swapcase())
    (by_one / "000003.manifest.json").write_text("{}")
    (by_one / "000004.safetensors").unlink()
    (by_one / "000005.manifest.json").unlink()
    (by_one / "000006.txt").unlink()
    (by_one / ".000003.99.txt").write_text("half a shard")
    main(arguments(corpus, by_one, "--vectors"))
    said = capsys.readouterr().err
    for shard in ("000000", "000001", "000002"):
        assert f"{shard}.txt is parsed again: {shard}.txt differ from {shard}.manifest.json" in said
    assert "000003.manifest.json is damaged" in said and "7 shards written, 22 existed already" in said
    assert text_of(by_one) == whole and (by_one / "000004.safetensors").read_bytes() == vectors
    assert not list(by_one.glob(".0*"))


def test_another_file_of_the_same_name_size_and_time_is_parsed(tmp_path, capsys):
    one, other = tmp_path / "one" / "text.txt", tmp_path / "other" / "text.txt"
    for path, text in ((one, "the old man\n"), (other, "the new car\n")):
        path.parent.mkdir()
        path.write_text(text)
        os.utime(path, ns=(10**18, 10**18))
        main(arguments([path], tmp_path / "out"))
    assert "000000.txt is parsed again: input" in capsys.readouterr().err
    assert "new" in text_of(tmp_path / "out")


@pytest.mark.parametrize("record", ["", "{}", "[1]"])
def test_a_damaged_record_of_settings_is_named(corpus, tmp_path, error_of, record):
    (tmp_path / "settings.json").write_text(record)
    assert "settings.json is damaged" in error_of(*arguments(corpus, tmp_path))


def test_a_folder_of_texts_with_the_names_of_shards_is_not_touched(tmp_path, error_of):
    texts = [tmp_path / name for name in ("000000.txt", "000001.txt")]
    for text in texts:
        text.write_text("mine\n")
    assert "has 000000.txt, which is no run's" in error_of(*arguments(texts, tmp_path))
    (tmp_path / "settings.json").write_text('{"editor": 1}')
    assert "has 000000.txt, which is no run's" in error_of(*arguments(texts, tmp_path))
    assert [text.read_text() for text in texts] == ["mine\n"] * 2
    assert (tmp_path / "settings.json").read_text() == '{"editor": 1}'


def test_a_run_that_finished_no_shard_does_not_hold_its_folder(tmp_path, error_of):
    parquet.write_table(pyarrow.table({"body": ["the old man"]}), tmp_path / "t.parquet")
    given = arguments([tmp_path / "t.parquet"], tmp_path / "out")
    assert "no text column 'text'" in error_of(*given)
    main([*given, "--text_column", "body"])
    assert text_of(tmp_path / "out").count("\n") == 1


def test_a_second_run_into_the_same_folder_is_refused(corpus, tmp_path, error_of):
    with hold_folder(tmp_path):
        assert f"{tmp_path} is in use by process {os.getpid()}" in error_of(*arguments(corpus, tmp_path))


def test_parquet_columns_of_categories_are_read(tmp_path):
    words = pyarrow.array(["the old man", None, "the old man"]).dictionary_encode()
    parquet.write_table(pyarrow.table({"text": words}), tmp_path / "c.parquet")
    rows = [text.text for text in read_texts([tmp_path / "c.parquet"], "text")]
    assert rows == ["the old man", "", "the old man"]


def test_a_parquet_file_with_damaged_pages_is_named(tmp_path):
    table = pyarrow.table({"text": [f"line {number}" for number in range(5000)]})
    parquet.write_table(table, tmp_path / "d.parquet", write_page_checksum=True)
    content = bytearray((tmp_path / "d.parquet").read_bytes())
    content[len(content) // 3] ^= 255
    (tmp_path / "d.parquet").write_bytes(content)
    with pytest.raises(ValueError, match="d.parquet is not a complete Parquet file"):
        list(read_texts([tmp_path / "d.parquet"], "text"))


def test_a_folder_of_other_settings_is_refused(corpus, by_one, error_of):
    for more, names in ((["--format", "jsonl", "--vectors"], "format"), ([], "vectors")):
        line = error_of(*arguments(corpus, by_one, *more))
        assert f"has shards of a run with different {names}; choose" in line
    assert json.loads((by_one / "settings.json").read_text())["shard_lines"] == 7


def test_other_texts_settings_and_damaged_files_are_refused(corpus, tmp_path, error_of):
    text = tmp_path / "text.txt"
    text.write_text("a b c\n")
    main(arguments([text], tmp_path / "out"))
    text.write_text("x y z\n")
    (tmp_path / "bad.parquet").write_text("no Parquet")
    for files, output, more, message in (
        ([text], "out", [], "with different files"),
        ([tmp_path / "bad.parquet"], "new", [], "bad.parquet is not a complete Parquet"),
        ([text], "new", ["--shard_lines", "0"], "--shard_lines must be >= 1, got 0"),
        (corpus[1:], "other", ["--text_column", "sentence"],
         "has no text column 'sentence'; --text_column must be one of text"),
    ):  # fmt: skip
        assert message in error_of(*arguments(files, tmp_path / output, *more))
