import math
import os

import pytest
from accelerate import Accelerator

from pretraining.checkpoints import Checkpoints, best_step, find_damage, last_whole_checkpoint
from pretraining.data import check_run_folder, make_run_folder, read_tokenizer


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path / "checkpoints", keep=2, accelerator=Accelerator(cpu=True))


@pytest.mark.parametrize(("metric", "values", "expected"), [
    ("f1", [math.nan, 40, 50, 45, 50], 2), ("f1", [math.nan], None), ("f1", [], None),
    ("validation_lm_loss", [5, 4, 6], 1), (None, [1], None),
])  # fmt: skip
def test_the_best_step_is_the_first_with_the_best_figure(metric, values, expected):
    assert best_step([{"step": step, metric: value} for step, value in enumerate(values)], metric) == expected


def write(text):
    return lambda folder: (folder / "weights").write_text(text, encoding="utf-8")


def names(checkpoints):
    return sorted(path.name for path in checkpoints.folder.iterdir())


def test_the_newest_are_kept(checkpoints):
    assert checkpoints.newest_good() is None
    for step in (9, 10, 100):
        checkpoints.save(step, write(str(step)))
    assert names(checkpoints) == ["checkpoint-000000010", "checkpoint-000000100"]
    assert (checkpoints.newest_good() / "weights").read_text() == "100"


def test_the_best_stays_however_old_it_is(checkpoints):
    for step in range(1, 6):
        checkpoints.save(step, write(str(step)), best=min(step, 2))
    assert names(checkpoints) == [f"checkpoint-00000000{step}" for step in (2, 4, 5)]


def test_one_that_was_not_finished_is_no_checkpoint(checkpoints):
    checkpoints.save(1, write("one"))

    def fail(folder):
        write("half")(folder)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        checkpoints.save(2, fail)
    assert (checkpoints.newest_good() / "weights").read_text() == "one"
    checkpoints.save(2, write("two"))
    assert names(checkpoints) == ["checkpoint-000000001", "checkpoint-000000002"]


@pytest.mark.parametrize("killed_at, found", [(0, "one"), (1, "one again")])
def test_one_that_is_replaced_is_there_at_every_moment(checkpoints, monkeypatch, killed_at, found):
    checkpoints.save(1, write("one"))
    renames = iter([os.rename] * killed_at)
    monkeypatch.setattr("os.rename", lambda *paths: next(renames)(*paths))
    with pytest.raises(StopIteration):
        checkpoints.save(1, write("one again"))
    monkeypatch.undo()
    assert (checkpoints.newest_good() / "weights").read_text() == found


@pytest.mark.parametrize(
    "harm", ["shorten", "change", "remove", "no list", "broken list", "empty list", "no files", "a list"]
)
def test_a_damaged_one_is_reported_and_the_one_before_it_used(checkpoints, caplog, harm):
    checkpoints.save(1, write("one"))
    checkpoints.save(2, write("two"))
    newest = checkpoints.folder / "checkpoint-000000002"
    weights, listing = newest / "weights", newest / "files.json"
    {
        "shorten": lambda: weights.write_text("tw"),
        "change": lambda: weights.write_text("owt"),
        "remove": weights.unlink,
        "no list": listing.unlink,
        "broken list": lambda: listing.write_text(listing.read_text()[:-5]),
        "empty list": lambda: listing.write_text(""),
        "no files": lambda: listing.write_text("{}"),
        "a list": lambda: listing.write_text("[1]"),
    }[harm]()
    assert checkpoints.newest_good().name == "checkpoint-000000001"
    assert "checkpoint-000000002 is damaged" in caplog.text


def test_when_all_are_damaged_nothing_is_begun_anew(checkpoints):
    checkpoints.save(1, write("one"))
    (checkpoints.folder / "checkpoint-000000001" / "weights").write_text("")
    with pytest.raises(ValueError, match="all checkpoints are damaged.*give another --output_dir"):
        checkpoints.newest_good()


def test_damaged_later_ones_do_not_push_out_good_ones(checkpoints):
    for step in (3, 6, 9):
        checkpoints.save(step, write(str(step)))
    checkpoints.keep = 1
    (checkpoints.folder / "checkpoint-000000009" / "weights").write_text("")
    assert checkpoints.newest_good().name == "checkpoint-000000006"
    checkpoints.save(7, write("7"))
    assert names(checkpoints) == ["checkpoint-000000007"]


def test_saving_again_replaces(checkpoints):
    checkpoints.save(1, write("one"))
    checkpoints.save(1, write("uno"))
    assert (checkpoints.newest_good() / "weights").read_text() == "uno"
    assert find_damage(checkpoints.newest_good()) is None
    assert names(checkpoints) == ["checkpoint-000000001"]


def test_a_folder_belongs_to_one_run(tmp_path, tokenizer):
    folder, settings = tmp_path / "run", {"seed": 0, "corpus": ["a.txt"], "afterwards": []}
    check_run_folder(folder, settings)
    assert read_tokenizer(folder) is None
    make_run_folder(folder, settings, tokenizer)
    check_run_folder(folder, settings)
    assert read_tokenizer(folder).get_vocab() == tokenizer.get_vocab()
    with pytest.raises(ValueError, match="run with other settings: seed was 0, now 1"):
        check_run_folder(folder, settings | {"seed": 1})
    with pytest.raises(ValueError, match="seed was 0, now 1, as the text decides.* the same text and settings"):
        check_run_folder(folder, settings | {"seed": 1}, ["seed"])


def test_a_run_with_stages_does_not_go_on_without(tmp_path, tokenizer):
    for name, stages in (("with", [{"steps": 4}]), ("without", []), ("older", None)):
        make_run_folder(tmp_path / name, {"seed": 0} | ({} if stages is None else {"stages": stages}), tokenizer)
    none, one = ({"stages": stages, "afterwards": []} for stages in ([], [{"steps": 4}]))
    check_run_folder(tmp_path / "without", none)
    check_run_folder(tmp_path / "older", none)
    with pytest.raises(ValueError, match="stage 1 was {'steps': 4}, now None"):
        check_run_folder(tmp_path / "with", none)
    with pytest.raises(ValueError, match="stage 1 was None, now {'steps': 4}"):
        check_run_folder(tmp_path / "older", one)


def test_what_comes_afterwards_may_change_until_it_begins(tmp_path, tokenizer):
    make_run_folder(tmp_path, {"afterwards": ["first", "second"]}, tokenizer)
    (tmp_path / "afterwards-1.txt.gz").touch()
    check_run_folder(tmp_path, {"afterwards": ["other"]})
    (tmp_path / "afterwards-1").mkdir()
    check_run_folder(tmp_path, {"afterwards": ["first", "other", "third"]})
    with pytest.raises(ValueError, match="afterwards was "):
        check_run_folder(tmp_path, {"afterwards": ["other", "second"]})
    (tmp_path / "model").mkdir()
    with pytest.raises(ValueError, match="afterwards was "):
        check_run_folder(tmp_path, {"afterwards": ["first", "second", "third"]})


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"seed": ', "\xff"])
def test_a_damaged_record_of_settings_is_named(tmp_path, tokenizer, content):
    make_run_folder(tmp_path, {"seed": 0}, tokenizer)
    (tmp_path / "run.json").write_text(content, encoding="latin-1")
    with pytest.raises(ValueError, match="run.json is damaged .*; restore it, or give another folder"):
        check_run_folder(tmp_path, {"seed": 0})


def test_a_damaged_tokenizer_of_a_run_is_named(tmp_path, tokenizer):
    make_run_folder(tmp_path, {"seed": 0}, tokenizer)
    (tmp_path / "tokenizer" / "tokenizer.json").write_text("[]")
    with pytest.raises(ValueError, match="tokenizer.json is damaged"):
        read_tokenizer(tmp_path)


def test_a_folder_that_was_being_made_can_be_made(tmp_path, tokenizer):
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    (tmp_path / ".run.json.host.123.json").write_text("{")  # of a process that was killed
    check_run_folder(tmp_path, {"seed": 0})
    assert read_tokenizer(tmp_path) is None
    make_run_folder(tmp_path, {"seed": 0}, tokenizer)
    assert read_tokenizer(tmp_path) is not None


def test_a_trainers_checkpoint_that_was_cut_is_passed_over(tmp_path):
    assert last_whole_checkpoint(tmp_path / "missing") is None
    for number in (5, 10, 9, "best"):
        (tmp_path / f"checkpoint-{number}").mkdir()
        if number != 10:
            (tmp_path / f"checkpoint-{number}" / "trainer_state.json").touch()
    assert last_whole_checkpoint(tmp_path) == str(tmp_path / "checkpoint-9")
