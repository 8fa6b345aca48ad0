"""The Python code of every page runs, from top to bottom, in a folder of its own."""

import pytest

from pages import PAGES, ROOT, python_blocks

SHARING = ROOT / "docs" / "guides" / "sharing.md"
SLOW = ("export.md", "fine_tuning.md")  # which write files for ONNX, and train
WITH_CODE = [
    pytest.param(page, marks=pytest.mark.slow if page.name in SLOW else (), id=page.name)
    for page in PAGES
    if python_blocks(page) and page != SHARING
]

# Something that a page's code prints.
PRINTED = {
    "README.md": "(0, 6) The old man bought a new car (384,)",
    "index.md": "┌───┴───┐",
    "parsing.md": "\n((((The (old bridge)) ,) ",
    "export.md": "((The (old man)) (bought (a (new car))))\ntorch.Size([1, 3, 2])",
    "vectors.md": "[[0, 4], [1, 4], [2, 4], [3, 4]]",
    "fine_tuning.md": "'score'",
    "evaluation.md": "'sentence_f1': 100.0",
    "speed.md": "(2, 128)",
}


@pytest.mark.parametrize("page", WITH_CODE)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for block in python_blocks(page):
        exec(compile(block, str(page), "exec"), names)
    assert PRINTED[page.name] in capsys.readouterr().out


def test_the_readme_begins_with_three_lines_from_text_to_its_tree(capsys):
    first, readme = python_blocks(ROOT / "README.md")[0], (ROOT / "README.md").read_text(encoding="utf-8")
    assert len([line for line in first.splitlines() if line]) == 3
    exec(first, {})
    drawing = capsys.readouterr().out.rstrip()
    assert f"```text\n{drawing}\n```" in readme


@pytest.mark.slow
def test_the_code_that_uploads_runs_against_a_hub_of_our_own(hub, tmp_path):
    hub.run(tmp_path / "home", "-c", "\n".join(python_blocks(SHARING)))
    wanted = {"model.safetensors", "tokenizer.json", "modeling_fast_r2d2.py", "modules.json"}
    assert wanted <= hub.repos["user/trees"][-1].keys()
