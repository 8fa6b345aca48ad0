"""README, guides and lab pages: the code and the commands in them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def python_blocks(page: Path) -> list[str]:
    """The page's Python blocks, each below so many empty lines that its lines have the page's numbers."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return ["\n" * text[: block.start(1)].count("\n") + block[1] for block in found]


def commands(page: Path) -> list[list[str]]:
    """Words of all calls of `fast-r2d2` and of scripts, in blocks and in tables, from the program on."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    scripts = r"(?:python|torchrun|accelerate launch)\b[^`\n|]*? (examples/\S+\.py\b[^`\n|>#]*)"
    found = re.findall(rf"(fast-r2d2 (?=[a-z]+ )[^`\n|>#]*)|{scripts}", text)
    return [(command or script).split() for command, script in found]
