"""Reports, unpacked as a browser would, against the trees and scores they are of."""

import base64
import json
import os
import re
import zlib
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from modeling_fast_r2d2.grammar_induction import LabelledTree, from_spans, parse_brackets, score_trees
from modeling_fast_r2d2.grammar_induction.systems import baseline_trees, best_binary_trees
from modeling_fast_r2d2.pictures import report, write_report

ATTACK = '</script><script>alert(1)</script><img src=x onerror=alert(1)>"$title$$ ${index}'
CARS = "(S (NP (D the) (N car)) (VP (V was) (ADJP (J new) (PP (P in) (N Rome)))))"
CATS = "(S (NP (D The) (N cat)) (VP (V saw) (NP (D a) (N dog))))"
FLAT = "(S (A one) (B two) (C three))"
VOID = {"meta", "input", "br", "img", "link"}
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=5)


class Page(HTMLParser):
    """Tags with their attributes, text outside of scripts, and scripts; refuses tags that do not match."""

    def __init__(self, html: str):
        super().__init__()
        self.tags, self.open, self.text, self.scripts = [], [], "", []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.open += [] if tag in VOID else [tag]
        self.scripts += [(dict(attributes), "")] if tag == "script" else []

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] == ["script"]:
            self.scripts[-1] = self.scripts[-1][0], self.scripts[-1][1] + data
        elif self.open[-1:] != ["style"]:
            self.text += data

    def packed(self, **wanted) -> list:
        """What the scripts with such attributes hold."""
        found = [data for attributes, data in self.scripts if wanted.items() <= attributes.items()]
        return [json.loads(zlib.decompress(base64.b64decode(data, validate=True))) for data in found]


def plain(text: str) -> str:
    return " ".join(text.split())


def trees(*brackets: str) -> list[LabelledTree]:
    return [parse_brackets(text) for text in brackets]


@pytest.fixture
def write(tmp_path):
    """Writes a report and reads it: the page, its index and its articles."""

    def _write(gold, predicted, title="A title", **options):
        write_report(tmp_path / "report.html", gold, predicted, title=title, **options)
        page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
        [index] = page.packed(id="index")
        return page, index, [article for chunk in page.packed(**{"class": "chunk"}) for article in chunk]

    return _write


def test_the_figures_are_those_of_the_scores(write):
    gold = trees(CARS, CATS, FLAT, CARS)
    predicted = baseline_trees(gold, "random")
    page, _, _ = write(gold, predicted, title="Random against gold")
    scores, text = score_trees(predicted, gold), plain(page.text)
    low, high = scores.confidence_interval()
    assert text.count("Random against gold") == 2  # in the head and above the page
    assert f"Sentence F1 {scores.sentence_f1:.1f} 95 % interval {low:.1f} to {high:.1f}" in text.replace("F1", "F1 ", 1)
    for figure in (scores.corpus_f1, scores.strict_sentence_f1, scores.script_sentence_f1, scores.script_corpus_f1):
        assert f"F1{figure:.1f} " in text
    assert "Sentences4 0 left out" in text and "without 1 that have no gold span" in text


def test_bars_are_as_long_as_the_numbers_beside_them(write, tmp_path):
    gold = trees(CARS, CATS)
    predicted = baseline_trees(gold, "left")
    write(gold, predicted)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    bar = r'<td class="bar"><div style="width:([\d.]+)%"></div></td>'
    row = rf'<tr><th scope="row">([^<]+)</th>{bar}<td>([\d.]+)</td><td>(\d+)</td></tr>'
    rows = {name: (width, number, count) for name, width, number, count in re.findall(row, html)}
    scores = score_trees(predicted, gold)
    expected = {label: (scores.recall(label), total) for label, (_, total) in scores.labels.items()}
    expected |= scores.by_length()
    assert rows == {name: (f"{value:.1f}", f"{value:.1f}", str(count)) for name, (value, count) in expected.items()}
    assert rows["NP"] == ("66.7", "66.7", "3")


def test_rare_labels_are_folded_away(write):
    labels = [f"L{number}" for number in range(23)]
    gold = trees(*(f"(S ({label} (A a) (B b)) (C c))" for label in labels))
    page, _, _ = write(gold, baseline_trees(gold, "left"))
    assert sum(tag == "details" for tag, _ in page.tags) == 1 and "3 more" in page.text
    assert re.findall(r"L\d+(?=100\.01)", page.text) == labels


def test_every_sentence_is_there_with_its_trees(write, monkeypatch):
    monkeypatch.setattr(report, "SENTENCES_PER_CHUNK", 3)
    gold = trees(*[CARS, CATS, FLAT] * 3, "(S (UH Yes))", CATS)
    predicted = baseline_trees(gold, "right")
    page, index, articles = write(gold, predicted)
    kept = [row for row, tree in enumerate(gold) if tree.num_leaves > 1]
    assert [len(chunk) for chunk in page.packed(**{"class": "chunk"})] == [3, 3, 3, 1]
    assert index["texts"] == [" ".join(gold[row].words) for row in kept]
    scores = score_trees(predicted, gold)
    for row, f1, article in zip(kept, scores.sentence_f1s, articles, strict=True):
        shown = Page(article)
        assert shown.text.startswith(f"Sentence {row + 1}: F1 {f1:.1f}, {gold[row].num_leaves} words")
        spans = {tuple(map(int, tag["data-span"].split())) for _, tag in shown.tags if "data-span" in tag}
        assert spans == gold[row].spans | predicted[row].spans
        shared, found, wanted = scores.counts[kept.index(row)]
        assert f"matched {shared}" in shown.text and f"not in gold {found - shared}" in shown.text
        assert f"missed {wanted - shared}" in shown.text
    assert "Sentences10 1 left out" in plain(page.text)


def test_sentences_are_ordered_by_f1_and_those_with_nothing_to_find_come_last(write):
    gold = trees(FLAT, *[CARS, CATS] * 8)
    predicted = baseline_trees(gold, "random", seed=3)
    page, index, articles = write(gold, predicted)
    f1s = score_trees(predicted, gold).sentence_f1s
    orders = index["orders"]
    assert all(sorted(order) == list(range(17)) for order in orders.values())
    assert orders["given"] == list(range(17)) and orders["random"] not in (orders["given"], orders["worst"])
    assert orders["worst"][-1] == orders["best"][-1] == 0
    assert len(set(f1s)) > 3
    assert [f1s[row] for row in orders["worst"][:-1]] == sorted(f1s[1:])
    assert [f1s[row] for row in orders["best"][:-1]] == sorted(f1s[1:], reverse=True)
    # what a browser shows that cannot unpack the rest
    html = "\n".join(articles[row] for row in orders["worst"][:10])
    assert plain(Page(html).text) in plain(page.text)
    assert sum(tag == "article" for tag, _ in page.tags) == 10


def test_a_report_is_the_same_every_time(write, tmp_path):
    gold = trees(CARS, CATS)
    write(gold, baseline_trees(gold, "left"))
    first = (tmp_path / "report.html").read_bytes()
    write(gold, baseline_trees(gold, "left"))
    assert (tmp_path / "report.html").read_bytes() == first


def assert_harmless(page: Page) -> None:
    assert {tag for tag, _ in page.tags} & {"img", "iframe", "link", "object", "form", "a"} == set()
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert not [value for _, attributes in page.tags for name, value in attributes.items() if name in ("src", "href")]


def test_words_labels_and_title_stay_text(write):
    words = [ATTACK.replace(" ", "_"), "--><!--", "<b>", "&lt;"]
    constituents = parse_brackets("(S (NP (A a) (B b)) (C c) (D d))").constituents
    labelled = tuple(constituent._replace(label=ATTACK) for constituent in constituents)
    gold = [LabelledTree(tuple(words), ("",) * 4, labelled, (0, 0, 1, 1))]
    page, index, articles = write(gold, [from_spans(words, [(0, 3), (1, 3)])], title=ATTACK)
    packed = {"type": "application/octet-stream"}
    assert [attributes for attributes, _ in page.scripts] == [packed | {"id": "index"}, packed | {"class": "chunk"}, {}]
    assert_harmless(page)
    assert ATTACK in page.text and index["texts"] == [" ".join(words)]
    [article] = articles
    assert_harmless(Page(article))
    assert "script" not in {tag for tag, _ in Page(article).tags} and " ".join(words) in Page(article).text


@example(words=["\ud800", "\x00"], title="\udfff")  # halves of pairs, which no file can hold
@given(words=st.lists(ANY_TEXT, min_size=2, max_size=5), title=st.text())
def test_any_words_make_a_page(tmp_path_factory, words, title):
    path = tmp_path_factory.mktemp("reports") / "report.html"
    tree = from_spans(words, [(0, len(words) - 1), (0, 1)])
    predicted = LabelledTree(tree.words, tree.tags, tree.constituents, tree.parents, word_ids=tuple(range(len(words))))
    write_report(path, [tree], [predicted], title=title)
    page = Page(path.read_text(encoding="utf-8"))
    assert len(page.scripts) == 3 and len(page.packed(**{"class": "chunk"})[0]) == 1
    assert_harmless(page)


def test_a_page_needs_no_network_and_may_use_none(write):
    gold = trees(CARS, CATS)
    page, _, articles = write(gold, gold)
    [policy] = [meta["content"] for tag, meta in page.tags if meta.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules.pop("default-src") == "'none'" and rules.pop("img-src") == "data:"
    assert set(rules.values()) <= {"'unsafe-inline'", "'none'"}
    script = page.scripts[-1][1]
    assert not re.search(r"https?:|//[a-z]|import\s*\(|fetch|XMLHttpRequest", script.replace("// ", ""))
    assert "url(" not in "".join(articles) and "@import" not in "".join(articles)
    assert "needs JavaScript" in page.text


def test_longer_sentences_are_left_out(write):
    gold = trees(CARS, FLAT, CATS)
    _, index, _ = write(gold, best_binary_trees(gold), max_length=5)
    assert index["texts"] == ["one two three", "The cat saw a dog"]


def test_trees_over_pieces_are_compared_over_words_or_pieces(write):
    gold = trees("(S (NP (D the) (N tabby)) (VP (V sleeps) (R now)))")
    pieces = [from_spans(["the", "tab", "##by", "sleeps", "now"], [(0, 4), (0, 2), (1, 2), (3, 4)])]
    _, index, [over_words] = write(gold, pieces)
    assert index["texts"] == ["the tabby sleeps now"] and "matched 2: the tabby; sleeps now" in Page(over_words).text
    page, index, [over_pieces] = write(gold, pieces, granularity="pieces")
    assert index["texts"] == ["the tab ##by sleeps now"] and "matched 3" in Page(over_pieces).text
    assert "WD: tab ##by (matched)" in Page(over_pieces).text and "5 pieces" in Page(over_pieces).text


def test_what_cannot_be_scored_is_refused_before_a_file_is_made(tmp_path):
    with pytest.raises(ValueError, match="different words"):
        write_report(tmp_path / "report.html", trees(CARS), trees(CATS), title="")
    with pytest.raises(ValueError, match="no gold tree of two or more words"):
        write_report(tmp_path / "report.html", trees("(S (UH Yes))"), trees("(S (UH Yes))"), title="")
    with pytest.raises(ValueError, match="no gold tree of two or more words, and at most 2, to score"):
        write_report(tmp_path / "report.html", trees(CARS), trees(CARS), title="", max_length=2)
    assert list(tmp_path.iterdir()) == []


def test_a_report_that_cannot_be_finished_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("the old one")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_report(path, trees(CARS), trees(CARS), title="")
    assert path.read_text() == "the old one" and list(tmp_path.iterdir()) == [path]


def test_folders_on_the_way_are_made(tmp_path):
    path = tmp_path / "of" / "today" / f"{'long' * 60}.html"  # a name that only just fits
    write_report(str(path), trees(CARS), trees(CARS), title="")
    assert path.stat().st_size > 5000
