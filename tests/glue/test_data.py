"""GLUE's files and the Hub's layout come out as the same rows; what is wrong with them is said."""

import pytest
from datasets import Dataset
from transformers import AutoTokenizer

from glue.tasks import TASKS, find_task, read_task
from glue.training import tokenize_rows

# What readers of tables stumble over: quotes, words for missing values, a number, outer blanks.
TEXTS = ['say "no', "None", "nan", "7", " it 's fine . ", "日本 é"]


def rows_of(task) -> list[dict]:
    rows = [{"text": text, "label": number % len(task.classes)} for number, text in enumerate(TEXTS)]
    return [row | {"text_pair": f"{row['text']} too"} for row in rows] if task.is_pair else rows


def write_tsv(task, folder):
    columns = task.header or ("index", *task.columns, "other")
    for name in ("train", *(stem for stem, _ in task.evaluations)):
        lines = [] if task.header else ["\t".join(columns)]
        for row in rows_of(task):
            known = dict(zip(task.columns, [row["text"], row.get("text_pair")][: len(task.columns) - 1], strict=False))
            label = task.classes[row["label"]] if task.name in ("MNLI", "RTE") else str(row["label"])
            known[task.columns[-1]] = label
            lines.append("\t".join(known.get(column, "n/a") for column in columns))
        path = folder / task.name / f"{name}.tsv"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_like_the_hub(task, folder):
    splits = ["train", *(split for _, split in task.evaluations)]
    for split in splits:
        rows = [dict(zip(task.hub_columns, [row[name] for name in ("text", "text_pair", "label") if name in row],
                         strict=True)) for row in rows_of(task)]  # fmt: skip
        (folder / task.hub_name).mkdir(exist_ok=True)
        Dataset.from_list(rows).to_parquet(folder / task.hub_name / f"{split}-00000-of-00001.parquet")
    files = "".join(f"  - split: {split}\n    path: {task.hub_name}/{split}-*\n" for split in splits)
    (folder / "README.md").write_text(f"---\nconfigs:\n- config_name: {task.hub_name}\n  data_files:\n{files}---\n")


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("write", [write_tsv, write_like_the_hub])
def test_rows_are_what_the_files_say(name, write, tmp_path):
    task = TASKS[name]
    write(task, tmp_path)
    data = read_task(task, str(tmp_path))
    assert list(data) == ["train", *(stem for stem, _ in task.evaluations)]
    for split in data.values():
        assert split.to_list() == rows_of(task)


def test_tasks_are_found_by_both_names():
    assert find_task("sst-2") is find_task("sst2") is TASKS["SST-2"]
    with pytest.raises(ValueError, match="no task 'STS-B'; there are CoLA, SST-2"):
        find_task("STS-B")


@pytest.mark.parametrize(("content", "message"), [
    ("sentence\tmark\nfine\t1\n", r"dev.tsv has no column label, but sentence, mark"),
    ("sentence\tlabel\nfine\t1\nbad\t2\n", r"line 3: '2' is no label of SST-2; its labels are 0 \(negative\)"),
    ("sentence\tlabel\nfine\n", "all rows lack a field, from .*dev.tsv, line 2"),
    ("sentence\tlabel\nfine\t1\n\nbad\t2\n", r"dev.tsv, line 4: '2' is no label"),
    ("sentence\tlabel\nso\tfine\t1\n", "dev.tsv, line 2: 'fine' is no label"),
    ("sentence\tlabel\n", "dev.tsv could not be read as a table with rows"),
    (None, "dev.tsv is not there"),
])  # fmt: skip
def test_bad_files_are_named(glue, tmp_path, content, message):
    folder = tmp_path / "SST-2"
    folder.mkdir()
    (folder / "train.tsv").write_bytes((glue / "SST-2" / "train.tsv").read_bytes())
    if content is not None:
        (folder / "dev.tsv").write_text(content)
    with pytest.raises(ValueError, match=message):
        read_task(TASKS["SST-2"], str(tmp_path))


def test_rows_that_lack_a_field_are_left_out_and_said(glue, tmp_path, caplog):
    (tmp_path / "SST-2").mkdir()
    (tmp_path / "SST-2" / "train.tsv").write_text("\ufeffsentence\tlabel\nfine\t1\nlost\n\nbad\t0\n", encoding="utf-8")
    (tmp_path / "SST-2" / "dev.tsv").write_bytes((glue / "SST-2" / "dev.tsv").read_bytes())
    rows = read_task(TASKS["SST-2"], str(tmp_path))["train"].to_list()
    assert rows == [{"text": "fine", "label": 1}, {"text": "bad", "label": 0}]
    assert "2 rows lack a field and are left out" in caplog.text and "train.tsv, line 3" in caplog.text


def test_a_folder_without_the_task_is_named(glue, tmp_path):
    with pytest.raises(ValueError, match="has no folder CoLA"):
        read_task(TASKS["CoLA"], str(glue))
    with pytest.raises(ValueError, match="has no column premise|could not be loaded"):
        write_like_the_hub(TASKS["RTE"], tmp_path)
        read_task(TASKS["MNLI"], str(tmp_path))


def test_long_rows_are_cut_and_blank_ones_unknown_and_said_once(checkpoint, caplog):
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    rows = Dataset.from_dict({"text": ["the film " * 50, "\u200b", "the film"], "label": [0, 1, 1]})
    encoded = tokenize_rows(rows, tokenizer, 10)
    assert [len(ids) for ids in encoded["input_ids"]] == [10, 0, 2]
    assert encoded["label"] == [0, 1, 1]
    assert caplog.messages == [
        "1 of 3 rows are longer than 10 tokens, cut", "1 of 3 rows are without text, [UNK] instead",
    ]  # fmt: skip
    pairs = tokenize_rows(rows.add_column("text_pair", ["a", "the film", "the film " * 50]), tokenizer, 10)
    assert [set(types) for types in pairs["token_type_ids"]] == [{0, 1}, {1}, {0, 1}]
