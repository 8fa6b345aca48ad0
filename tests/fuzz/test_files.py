"""Any bytes in a file: its lines, or an error that names the file."""

import gzip
import shutil
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from fast_r2d2_entry_points.command_line.texts import read_texts
from modeling_fast_r2d2 import TreeParser, bundled_checkpoint
from modeling_fast_r2d2.grammar_induction import read_treebank
from strategies import FEWER, damaged, texts

pytestmark = pytest.mark.slow


def in_parquet(lines: list[str], is_dictionary: bool) -> bytes:
    column = pyarrow.array(lines, pyarrow.string())
    buffer = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table({"text": column.dictionary_encode() if is_dictionary else column}), buffer)
    return buffer.getvalue().to_pybytes()


plain = st.lists(texts, max_size=5).map(lambda lines: "\n".join(lines).encode("utf-8", "replace"))
clean = st.lists(texts.map(lambda text: text.encode("utf-8", "replace").decode()), max_size=5)
rows = st.builds(in_parquet, clean, st.booleans())
contents = {"text.txt": plain, "text.txt.gz": plain.map(gzip.compress), "rows.parquet": rows}


@pytest.mark.parametrize("name", contents)
def test_any_file_of_text_is_read_or_refused_by_name(tmp_path, name):
    @FEWER
    @given(content=st.one_of(contents[name], damaged(contents[name]), st.binary(max_size=40)))
    def check(content):
        (tmp_path / name).write_bytes(content)
        try:
            assert all(isinstance(found.text, str) for found in read_texts([tmp_path / name], "text"))
        except ValueError as error:
            assert name in str(error)

    check()


@FEWER
@given(content=st.one_of(plain, damaged(plain)))
def test_any_file_is_a_treebank_or_refused(tmp_path, content):
    (tmp_path / "gold.mrg").write_bytes(content)
    try:
        assert read_treebank(tmp_path / "gold.mrg")
    except ValueError as error:
        assert "gold.mrg" in str(error)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return Path(shutil.copytree(bundled_checkpoint(), tmp_path_factory.mktemp("fuzz") / "checkpoint"))


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "tokenizer.json", "model.safetensors"])
def test_a_damaged_checkpoint_parses_or_is_refused(checkpoint, name):
    whole = (checkpoint / name).read_bytes()

    @FEWER
    @given(data=st.data())
    def check(data):
        head, tail = whole[:2000], whole[2000:]  # damage to the middle of weights is only other numbers
        (checkpoint / name).write_bytes(data.draw(damaged(st.just(head))) + tail)
        try:
            parsed = TreeParser.from_pretrained(str(checkpoint))(["the old man"])
        except (ValueError, OSError):
            return
        assert parsed[0].tree.num_leaves == 3

    try:
        check()
    finally:
        (checkpoint / name).write_bytes(whole)
