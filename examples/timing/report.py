"""The table of a run: text, JSON, a plot."""

import json
from pathlib import Path

from modeling_fast_r2d2.grammar_induction.comparison import as_markdown
from timing.clock import Time


def table(rows: list[dict]) -> str:
    """A row a system, a column a range: seconds with their spread, times the first system's, peak memory."""
    ranges = list(dict.fromkeys(row["range"] for row in rows))
    systems = list(dict.fromkeys(row["system"] for row in rows))
    cells = {(row["system"], row["range"]): row for row in rows}
    head = ["seconds (least to most)", *ranges]
    body = [[name, *(_cell(cells.get((name, bounds))) for bounds in ranges)] for name in systems]
    return as_markdown([head, *body])


def _cell(row: dict | None) -> str:
    if row is None:
        return "–"
    text = f"{row['seconds']:.2f} ({row['least']:.2f} to {row['most']:.2f})"
    if row.get("times_bert"):
        text += f", {row['times_bert']:.2f} x"
    if row.get("times_products"):
        text += f", {row['times_products']:.2f} x products"
    if row.get("times_products_as_they_lie"):
        text += f" ({row['times_products_as_they_lie']:.2f} x as they lie)"
    if row.get("peak_bytes"):
        text += f", {row['peak_bytes'] / 2**30:.2f} GiB"
    return text


def row_of(system: str, bounds: str, tokens: int, time: Time, **more) -> dict:
    row = {"system": system, "range": bounds, "tokens": tokens, "seconds": time.median}
    return row | {"least": time.least, "most": time.most, "tokens_per_second": tokens / time.median} | more


def write(results: dict, folder: Path) -> None:
    """``speed.json`` and ``speed.png``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "speed.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    plot(results, folder / "speed.png")


def plot(results: dict, path: Path) -> None:
    """Seconds by range; seconds and memory of one sentence by its length."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = 3 if results["lengths"] else 1
    figure, axes = pyplot.subplots(1, panels, figsize=(8 + 4 * (panels - 1), 4.8), squeeze=False, layout="constrained")
    ranges, *by_length = axes[0]
    figure.suptitle(results["title"])
    _plot_ranges(ranges, results["ranges"])
    quantities = (("seconds", 1, "seconds"), ("peak_bytes", 2**30, "GiB"))
    for axes, (what, scale, label) in zip(by_length, quantities, strict=False):
        for shape in dict.fromkeys(row["shape"] for row in results["lengths"]):
            rows = [row for row in results["lengths"] if row["shape"] == shape]
            axes.plot([row["tokens"] for row in rows], [row[what] / scale for row in rows], marker="o", label=shape)
        axes.set(xscale="log", yscale="log", xlabel="tokens", ylabel=label, title="one sentence, along its tree")
        axes.legend(fontsize="small")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _plot_ranges(axes, rows: list[dict]) -> None:
    for system in dict.fromkeys(row["system"] for row in rows):
        of_system = [row for row in rows if row["system"] == system]
        seconds = [row["seconds"] for row in of_system]
        spread = [[abs(row[end] - row["seconds"]) for row in of_system] for end in ("least", "most")]
        style = ":" if system.startswith("products") else "--" if system.startswith("BERT") else "-"
        axes.errorbar(
            [row["range"] for row in of_system], seconds, spread,
            marker="o", linestyle=style, label=system,
        )  # fmt: skip
    axes.set(yscale="log", xlabel="tokens of a sentence", ylabel="seconds", title="encoding a set of sentences")
    if rows:
        axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
