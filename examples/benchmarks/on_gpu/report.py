"""The JSON files of the parts as the documentation's tables, in Markdown.

python examples/benchmarks/on_gpu/report.py runs/gpu > table.md
"""

import argparse
import json
from pathlib import Path
from typing import Any

PARTS = ("checks", "where_time_goes", "speed", "compare", "train")


def report(folder: Path) -> str:
    """The tables of all parts that have run; what failed or was left out is named."""
    results = {name: json.loads(path.read_text()) for name in PARTS if (path := folder / f"{name}.json").exists()}
    if not results:
        raise ValueError(f"no result of a part in {folder}")
    sections = [SECTIONS[name](found) for name, found in results.items()] + [_troubles(results)]
    return "\n\n".join(section for section in sections if section) + "\n"


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) if rows else ""


def _is_measured(result: Any) -> bool:
    return not (isinstance(result, dict) and ("error" in result or "left_out" in result))


def _checks(found: dict) -> str:
    versions = found.get("versions", {})
    words = ", ".join(f"{name} {value}" for name, value in versions.items())
    rows = [[name, json.dumps(value)] for name, value in found.items() if name != "versions" and _is_measured(value)]
    return f"{words}\n\n" + _markdown(["check", "result"], rows)


def _where_time_goes(found: dict) -> str:
    head = ["case", "ms", "GPU at work, ms", "launches", "waits", "peak, GiB", "tokens per second"]
    rows = [
        [
            name, f"{1000 * row['seconds']:.1f}", f"{1000 * row['device_seconds']:.1f}", str(row["launches"]),
            str(row["waits"]), f"{row['peak_bytes'] / 2**30:.2f}", f"{row['tokens'] / row['seconds']:,.0f}",
        ]
        for name, row in found.items() if _is_measured(row) and "device_seconds" in row
    ]  # fmt: skip
    plans = [
        [f"{name}: {how}", f"{milliseconds:.2f}"]
        for name, row in found.items() if name.startswith("planning") and _is_measured(row)
        for how, milliseconds in row.items()
    ]  # fmt: skip
    rates = [f"{name}: {json.dumps(found[name])}" for name in ("copying", "products") if name in found]
    return "\n\n".join([*rates, _markdown(head, rows), _markdown(["planning", "ms"], plans)])


def _speed(found: dict) -> str:
    rows = [
        [batching, row["system"], f"{row['seconds']:.3f}", f"{row['tokens_per_second']:,.0f}", _ratio(row)]
        for batching, part in found.items() if isinstance(part, list) for row in part
    ]  # fmt: skip
    training = [
        [name, f"{row['tokens']:,}", f"{row['tokens_per_second']:,.0f}", f"{row['peak_bytes'] / 2**30:.1f}"]
        for name, row in found.items() if name.startswith("training") and _is_measured(row)
    ]  # fmt: skip
    return "\n\n".join([
        _markdown(["batches, tokens per sentence", "system", "s", "tokens per second", "x BERT-12L"], rows),
        _markdown(["training", "tokens", "tokens per second", "peak, GiB"], training),
    ])  # fmt: skip


def _ratio(row: dict) -> str:
    return f"{row['times_bert']:.2f}" if "times_bert" in row else "–"


def _compare(found: dict) -> str:
    rows = [
        [case, way, f"{1000 * time['seconds']:.1f}", f"{time['seconds'] / next(iter(ways.values()))['seconds']:.2f}"]
        for case, ways in found.items() if _is_measured(ways) for way, time in ways.items()
    ]  # fmt: skip
    return _markdown(["case", "way", "ms", "x the first way"], rows)


def _train(found: dict) -> str:
    row = found.get("training run", {})
    return f"Training run: {row['status']}, {row['seconds']:.0f} s" if "status" in row else ""


def _troubles(results: dict[str, dict]) -> str:
    """Everything that failed or was left out."""
    lines = [
        f"- {part}, {name}: {result.get('error', result.get('left_out'))}"
        for part, found in results.items() for name, result in found.items() if not _is_measured(result)
    ]  # fmt: skip
    return "Not measured:\n\n" + "\n".join(lines) if lines else ""


SECTIONS = dict(zip(PARTS, (_checks, _where_time_goes, _speed, _compare, _train), strict=True))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="output folder of the parts")
    print(report(parser.parse_args(arguments).folder), end="")


if __name__ == "__main__":
    main()
