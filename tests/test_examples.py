"""The bundled checkpoint and the demo, as a user runs them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from setuptools.command.egg_info import FileList
from transformers import AutoModel, AutoTokenizer

from modeling_fast_r2d2 import BinaryTree, bundled_checkpoint

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(("name", "most_bytes"), [("fast-r2d2-tiny", 20_000_000), ("fast-r2d2-small", 40_000_000)])
def test_a_bundled_checkpoint_is_small_and_loads_with_its_tokenizer(name, most_bytes):
    folder = Path(bundled_checkpoint(name))
    assert sum(path.stat().st_size for path in folder.iterdir()) <= most_bytes
    assert (folder / "README.md").read_text(encoding="utf-8").startswith("---\n")  # the model card
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    assert len(tokenizer) == model.config.vocab_size == 8000
    assert tokenizer.convert_tokens_to_ids("[SUM]") == model.config.sum_token_id
    with pytest.raises(ValueError, match="are fast-r2d2-small, fast-r2d2-tiny, got 'fast-r2d2-huge'"):
        bundled_checkpoint("fast-r2d2-huge")


def test_the_bundled_checkpoints_have_one_parser_and_vectors_are_of_different_worth():
    """What all pages say of the two: the same trees, and cosines that tell what is said from what is alike in form."""
    small, tiny = (AutoModel.from_pretrained(bundled_checkpoint(f"fast-r2d2-{name}")) for name in ("small", "tiny"))
    for name, weight in tiny.parser.state_dict().items():
        assert weight.equal(small.parser.state_dict()[name])
    texts = [
        "A doctor treated the patient", "The nurse works in a hospital", "A singer released the album",
        "The bank raised its rates", "The central bank increased interest rates", "The cat left its basket",
        "A man is playing a guitar", "Someone plays an instrument", "A man is watching a river",
    ]  # fmt: skip
    margins = {}
    for name, model in {"small": small, "tiny": tiny}.items():
        first, alike, other = model.encode(texts, normalize_embeddings=True).reshape(3, 3, -1).swapaxes(0, 1)
        margins[name] = (first * (alike - other)).sum(-1)
    assert min(margins["small"]) > 0.1 and margins["small"].mean() > 0.3 > 0 > margins["tiny"].mean(), margins


def test_a_source_distribution_has_what_its_tests_and_make_need(monkeypatch):
    monkeypatch.chdir(ROOT)
    found = FileList()
    for line in (ROOT / "MANIFEST.in").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            found.process_template_line(line)
    folders = [path for name in ("docs", "examples", "kernels", "tests") for path in (ROOT / name).rglob("*")]
    needed = {str(path.relative_to(ROOT)) for path in folders if path.is_file() and "__pycache__" not in path.parts}
    needed |= {"CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "Makefile", "constraints.txt", "mkdocs.yml"}
    assert not needed - set(found.files)


@pytest.mark.slow
def test_the_demo_draws_ten_trees_and_prints_their_brackets():
    recipe = re.search(r"^demo:.*\n\t(.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[1]
    command = recipe.replace("$(VENV)/bin", str(Path(sys.executable).parent)).split()
    result = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=ROOT)
    assert result.returncode == 0, result.stderr
    sentences = (ROOT / "examples" / "sentences.txt").read_text(encoding="utf-8").splitlines()
    brackets = [line for line in result.stdout.splitlines() if line.startswith("(")]
    assert len(sentences) == len(brackets) == 10
    for sentence, text in zip(sentences, brackets, strict=True):
        assert "".join(BinaryTree.from_brackets(text)[1]) == sentence.replace(" ", "")
    assert "┬" in result.stdout and "10 sentences in" in result.stderr and "sentences/s" in result.stderr
