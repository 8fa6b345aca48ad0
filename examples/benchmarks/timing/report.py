"""The results of `encoding_speed.py` as text, JSON and plot."""

import json
import textwrap
from functools import partial
from pathlib import Path

from modeling_fast_r2d2.grammar_induction.comparison import as_markdown
from modeling_fast_r2d2.text_files import write_text
from timing.clock import Time
from timing.systems import FAIR_BERT


def table(rows: list[dict]) -> str:
    """A table with a row per system and a column per range.

    A cell has the seconds with their spread, the ratios to the fair BERT, to BERT as torch runs it and to the matrix
    products, and the peak memory.
    """
    ranges = list(dict.fromkeys(row["range"] for row in rows))
    systems = list(dict.fromkeys(row["system"] for row in rows))
    cells = {(row["system"], row["range"]): row for row in rows}
    head = ["seconds (least to most)" + _which_is_fair(rows), *ranges]
    body = [[name, *(_cell(cells.get((name, bounds))) for bounds in ranges)] for name in systems]
    return as_markdown([head, *body])


def _cell(row: dict | None) -> str:
    if row is None:
        return "–"
    text = f"{row['seconds']:.2f} ({row['least']:.2f} to {row['most']:.2f})"
    text += _to_berts(row)
    if row.get("times_products"):
        text += f", {row['times_products']:.2f} x products"
    if row.get("peak_bytes"):
        text += f", {row['peak_bytes'] / 2**30:.2f} GiB"
    return text


def describe_batch_sizes(rows: list[dict]) -> str:
    """A table with a row per system and a column per size: milliseconds with their spread, ratios to both BERTs."""
    sizes = list(dict.fromkeys(row["batch_size"] for row in rows))
    head = ["milliseconds per batch (least to most), by its sentences" + _which_is_fair(rows), *map(str, sizes)]
    body: dict[str, list[str]] = {}
    for row in rows:
        median, least, most = (1000 * row[what] for what in ("seconds", "least", "most"))
        cell = f"{median:.0f} ({least:.0f} to {most:.0f}){_to_berts(row)}"
        body.setdefault(row["system"], [row["system"]]).append(cell)
    return as_markdown([head, *body.values()])


def _which_is_fair(rows: list[dict]) -> str:
    return f"; the fair BERT is {FAIR_BERT}" if any("times_fair_bert" in row for row in rows) else ""


def _to_berts(row: dict) -> str:
    """Ratios to both BERTs, the fair one first."""
    names = {"times_fair_bert": "fair BERT", "times_bert": "BERT"}
    return "".join(f", {row[name]:.2f} x {what}" for name, what in names.items() if name in row)


def row_of(system: str, bounds: str, tokens: int, time: Time, **more) -> dict:
    row = {"system": system, "range": bounds, "tokens": tokens, "seconds": time.median}
    return row | {"least": time.least, "most": time.most, "tokens_per_second": tokens / time.median} | more


def write(results: dict, folder: Path) -> None:
    """Write ``speed.json`` and ``speed.png``."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "speed.json", json.dumps(results, indent=2) + "\n")
    plot(results, folder / "speed.png")


def plot(results: dict, path: Path) -> None:
    """Plot seconds by range, by sentences per batch and by length, and memory by length."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    parts = [(_plot_ranges, results["ranges"])]
    if results["batch_sizes"]:
        parts.append((_plot_batch_sizes, results["batch_sizes"]))
    if results["lengths"]:
        parts += [(partial(_plot_lengths, what=what), results["lengths"]) for what in ("seconds", "peak_bytes")]
    size = 8 + 4 * (len(parts) - 1), 4.8
    colors = matplotlib.colormaps["tab20"].colors  # ten strong colours, each followed by its pale variant
    figure, axes = pyplot.subplots(1, len(parts), figsize=size, squeeze=False, layout="constrained")
    figure.suptitle(textwrap.fill(results["title"], 90 + 50 * (len(parts) - 1)), fontsize="medium")
    for (plot_part, rows), panel in zip(parts, axes[0], strict=True):
        panel.set_prop_cycle(color=[*colors[::2], *colors[1::2]])
        plot_part(panel, rows)
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


def _plot_batch_sizes(axes, rows: list[dict]) -> None:
    for system in dict.fromkeys(row["system"] for row in rows):
        of_system = [row for row in rows if row["system"] == system]
        sizes, seconds = ([row[what] for row in of_system] for what in ("batch_size", "seconds"))
        axes.plot(sizes, seconds, marker="o", linestyle="--" if system.startswith("BERT") else "-", label=system)
    axes.set(xscale="log", yscale="log", xlabel="sentences", ylabel="seconds", title="one batch, by its sentences")
    sizes = sorted({row["batch_size"] for row in rows})
    axes.set_xticks(sizes, list(map(str, sizes)), minor=False)
    axes.set_xticks([], minor=True)
    axes.legend(fontsize="small")


def _plot_lengths(axes, rows: list[dict], what: str) -> None:
    scale, label = {"seconds": (1, "seconds"), "peak_bytes": (2**30, "GiB")}[what]
    for shape in dict.fromkeys(row["shape"] for row in rows):
        of_shape = [row for row in rows if row["shape"] == shape]
        axes.plot([row["tokens"] for row in of_shape], [row[what] / scale for row in of_shape], marker="o", label=shape)
    axes.set(xscale="log", yscale="log", xlabel="tokens", ylabel=label, title="one sentence, along its tree")
    axes.legend(fontsize="small")
