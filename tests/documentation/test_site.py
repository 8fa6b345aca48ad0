"""The site builds without a warning and asks no other server; version and packaging agree."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fast_r2d2_entry_points.command_line import main
from modeling_fast_r2d2 import __version__

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    return folder


@pytest.mark.slow
def test_no_page_loads_anything_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    of_other_servers = r'<(?:script|img|link|iframe)[^>]*(?:src|href)="?(?:https?:)?//[^">]*'
    for page in pages:
        loaded = re.findall(of_other_servers, page.read_text("utf-8"))
        assert not loaded, f"{page}: {loaded}"


@pytest.mark.slow
def test_the_reference_has_the_public_names(site):
    import fast_r2d2_kernels
    import modeling_fast_r2d2
    import tokenization_fast_r2d2
    from modeling_fast_r2d2 import grammar_induction, pictures

    pages = "".join(page.read_text("utf-8") for page in site.rglob("reference/*.html"))
    anchors = set(re.findall(r'id="([\w.]+)"', pages))
    for package in (modeling_fast_r2d2, tokenization_fast_r2d2, fast_r2d2_kernels, grammar_induction, pictures):
        names = {name for name in package.__all__ if name != "__version__"}
        missing = {f"{package.__name__}.{name}" for name in names} - anchors
        assert not missing


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_files_outside_the_site_lead_somewhere(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_there_is_one_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"fast-r2d2 {__version__}\n"
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] == __version__
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
