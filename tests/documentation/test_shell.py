"""The commands of every page name scripts that are there and options that they have."""

import re
import runpy
import subprocess
import sys
from functools import cache

import pytest

from fast_r2d2_entry_points.command_line import main
from modeling_fast_r2d2 import TreeParser
from pages import PAGES, ROOT, commands

COMMANDS = {page: commands(page) for page in PAGES}


@pytest.fixture
def help_of(monkeypatch, capsys):
    """What ``--help`` prints of a script or a command of `fast-r2d2`."""
    monkeypatch.setenv("COLUMNS", "200")

    @cache
    def help_text(program: str, *command: str) -> str:
        with monkeypatch.context() as patch, pytest.raises(SystemExit):
            if program == "fast-r2d2":
                main([*command, "--help"])
            patch.setattr(sys, "argv", [program, "--help"])
            patch.syspath_prepend(str((ROOT / program).parent))
            runpy.run_path(str(ROOT / program), run_name="__main__")
        return capsys.readouterr().out

    return help_text


@pytest.mark.parametrize("page", [page for page in PAGES if COMMANDS[page]], ids=lambda page: page.name)
def test_the_commands_of_a_page_have_these_options(page, help_of):
    for program, *words in COMMANDS[page]:
        assert program == "fast-r2d2" or (ROOT / program).is_file(), program
        command = re.match(r"(convert )?[a-z]+", " ".join(words))[0].split() if program == "fast-r2d2" else []
        for option in re.findall(r"(?<!\S)--[a-z]\w+", " ".join(words)):
            assert re.search(rf"{option}\b", help_of(program, *command)), f"{program} {option}"


def test_the_readme_activates_the_environment_that_the_demo_makes():
    readme, makefile = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "Makefile"))
    folder = re.search(r"^VENV \?= (\S+)$", makefile, re.MULTILINE)[1]
    demo, activation = readme.index("`make demo`"), readme.index(f"\nsource {folder}/bin/activate\n")
    assert demo < activation < readme.index("\nfast-r2d2 parse")


def test_the_readme_defines_the_columns_of_its_scores():
    scores = (ROOT / "README.md").read_text(encoding="utf-8").partition("## How good it is")[2].partition("\n## ")[0]
    header = re.search(r"^\| \| (.*) \|$", scores, re.MULTILINE)[1]
    defined = re.findall(r"^\| ([^|]*) \| [^|]*\w{3}[^|]* \|$", scores.partition("| column |")[2], re.MULTILINE)
    assert defined == header.split(" | ")


def test_the_drawn_tree_is_what_its_command_makes(capsys):
    main(["parse", "The old man bought a new car", "--format", "svg"])
    drawn = capsys.readouterr().out.replace("<svg ", '<svg color="gray" ')
    assert (ROOT / "docs" / "tree.svg").read_text(encoding="utf-8") == drawn


@pytest.mark.slow
def test_the_pretraining_of_the_readme_makes_a_model_that_parses(tmp_path):
    """On a folder of a user's own files, with the README's options, the vocabulary and the length apart."""
    (tmp_path / "my-texts").mkdir()
    text = "The cat sat on the mat. A dog ate the old bone, slowly.\n" * 500
    for path in ("my-texts/one.txt", "my-texts/two.txt"):
        (tmp_path / path).write_text(text, encoding="utf-8")
    [[script, *words]] = [found for found in commands(ROOT / "README.md") if "my-texts/" in found]
    shorter = ["--vocab_size", "60", "--length", "0.0001"]
    result = subprocess.run(
        [sys.executable, str(ROOT / script), *words, *shorter],
        capture_output=True, text=True, encoding="utf-8", cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    run = tmp_path / "runs" / "mine"
    assert "counts_skew: 1.00, since" in result.stdout and "parser:" in (run / "trees.txt").read_text(encoding="utf-8")
    [parsed] = TreeParser.from_pretrained(str(run / "model"))(["the dog sat ."])
    assert parsed.leaves == ["the", "dog", "sat", "."]
