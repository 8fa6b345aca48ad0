"""Drawings, read back as XML, against what they must show."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeling_fast_r2d2.grammar_induction import LabelledTree, from_spans, parse_brackets
from modeling_fast_r2d2.pictures import draw_comparison, draw_tree
from modeling_fast_r2d2.pictures.layout import text_width

SVG = "{http://www.w3.org/2000/svg}"
ATTACK = "</script><script>alert(1)</script>"

any_text = st.text(st.characters(exclude_categories=()), max_size=6)  # surrogates and control characters, too
a_word = st.sampled_from(["a", "of", "Parliament", "東京"])
a_label = st.sampled_from(["", "NP", "VP", "a long label that is wider than its words"])


def crosses(a, b) -> bool:
    return a[0] < b[0] <= a[1] < b[1] or b[0] < a[0] <= b[1] < a[1]


@st.composite
def a_tree(draw, words=a_word, labels=a_label):
    """Words and constituents: any spans, less those that cross an earlier one."""
    words = draw(st.lists(words, min_size=1, max_size=9))
    ends = st.integers(0, len(words) - 1)
    constituents = []
    for first, last, label in draw(st.lists(st.tuples(ends, ends, labels), max_size=12)):
        span = min(first, last), max(first, last)
        if not any(crosses(span, other[:2]) for other in constituents):
            constituents.append((*span, label))
    return words, constituents


def widest_inside(span, spans) -> list:
    within = [s for s in spans if s != span and span[0] <= s[0] and s[1] <= span[1]]
    return [s for s in within if not any(t != s and t[0] <= s[0] and s[1] <= t[1] for t in within)]


def height_of(span, spans) -> int:
    return 1 + max((height_of(child, spans) for child in widest_inside(span, spans)), default=0)


class Picture:
    """What a reader sees: words, nodes by span, each with its place, and bars."""

    def __init__(self, svg: str | ElementTree.Element):
        self.svg = ElementTree.fromstring(svg) if isinstance(svg, str) else svg
        _, _, self.width, self.height = map(float, self.svg.get("viewBox").split())
        self.words = [(int(text.get("x")), int(text.get("y"))) for text in self.svg.findall(f"{SVG}text")]
        groups = [group for group in self.svg.iter(f"{SVG}g") if "data-span" in group.attrib]
        self.nodes = {tuple(map(int, group.get("data-span").split())): group for group in groups}
        rects = self.svg.iter(f"{SVG}rect")
        self.bars = [{side: int(rect.get(side)) for side in ("x", "y", "width", "height")} for rect in rects]

    def place(self, span) -> tuple[int, int]:
        label, knob = self.label(span), self.nodes[span].find(f"{SVG}circle")
        x, y = (knob.get("cx"), knob.get("cy")) if label is None else (label.get("x"), label.get("y"))
        return int(x), int(y)

    def label(self, span) -> ElementTree.Element | None:
        return self.nodes[span].find(f"{SVG}text")

    def path(self, span) -> ElementTree.Element:
        return self.nodes[span].find(f"{SVG}path")

    def title(self, span) -> str:
        return self.nodes[span].find(f"{SVG}title").text

    def verticals(self, span) -> set[tuple[int, int, int]]:
        """Column, upper and lower end of a node's vertical lines."""
        lines, x, y = set(), 0, 0
        for command, first, second in re.findall(r"([MHV])(-?\d+)(?: (-?\d+))?", self.path(span).get("d")):
            previous = int(y)
            x, y = {"M": (first, second), "H": (first, y), "V": (x, first)}[command]
            if command == "V":
                lines.add((int(x), *sorted((previous, int(y)))))
        return lines

    def texts(self) -> list[tuple[int, float, float]]:
        """Row, left and right end of every text, as far as they can be known without fonts."""
        places = []
        for parent in self.svg.iter():
            size = 14 if parent is self.svg else 12
            for text in parent.findall(f"{SVG}text"):
                half, x = size * text_width(text.text) / 2, int(text.get("x"))
                places.append((int(text.get("y")), x - half, x + half))
        return sorted(places)


@given(tree=a_tree(words=any_text, labels=any_text), title=any_text)
def test_any_words_labels_and_title_make_well_formed_xml(tree, title):
    words, constituents = tree
    picture = Picture(draw_tree(words, constituents, title=title))
    assert len(picture.words) == len(words)
    assert set(picture.nodes) == {(first, last) for first, last, _ in constituents}
    assert picture.svg.get("role") == "img" and picture.svg.find(f"{SVG}title").text


@given(tree=a_tree())
def test_a_node_stands_over_its_words_and_above_its_children(tree):
    words, constituents = tree
    picture = Picture(draw_tree(words, constituents))
    columns = [x for x, _ in picture.words]
    assert columns == sorted(set(columns)) and len({y for _, y in picture.words}) == 1
    for first, last in picture.nodes:
        x, y = picture.place((first, last))
        assert max(columns[:first], default=-1) < x < min(columns[last + 1 :], default=picture.width)
        lower = [picture.words[first], *map(picture.place, widest_inside((first, last), picture.nodes))]
        assert y < min(row for _, row in lower) - 16


@given(tree=a_tree(labels=st.just("X")))
def test_nodes_of_one_height_stand_in_one_row(tree):
    picture = Picture(draw_tree(*tree))
    rows: dict[int, set[int]] = {}
    for span in picture.nodes:
        rows.setdefault(height_of(span, picture.nodes), set()).add(picture.place(span)[1])
    assert all(len(row) == 1 for row in rows.values())
    steps = {low - high for (_, [low]), (_, [high]) in pairwise(sorted(rows.items()))}
    assert len(steps) == (len(rows) > 1)


@given(tree=a_tree())
def test_a_line_leads_from_a_node_to_each_child_and_to_nothing_else(tree):
    words, constituents = tree
    picture = Picture(draw_tree(words, constituents))
    for span in picture.nodes:
        nodes = {(word, word): place for word, place in enumerate(picture.words)}
        nodes |= {other: picture.place(other) for other in picture.nodes if other != span}
        if span[0] == span[1]:
            children = [picture.words[span[0]]]  # a constituent of one word
        else:
            children = [nodes[child] for child in widest_inside(span, nodes)]
        lines = picture.verticals(span)
        assert len(lines) == len(children) + (picture.label(span) is not None)
        for x, y in children:
            assert any(column == x and 0 <= y - end <= 16 for column, _, end in lines)


@given(tree=a_tree())
def test_texts_neither_overlap_nor_leave_the_picture(tree):
    picture = Picture(draw_tree(*tree))
    for (row, _, right), (next_row, left, _) in pairwise(picture.texts()):
        assert row != next_row or right < left - 5
    left, top, width, height = map(float, picture.svg.get("viewBox").split())
    assert (left, width, height) == (0, picture.width, picture.height)
    for row, begin, end in picture.texts():
        assert 0 <= begin and end <= width and top + 12 < row < top + height - 4


@given(data=st.data(), words=st.lists(st.sampled_from(["a", "longer"]), min_size=1, max_size=8))
def test_bars_stand_between_words_in_the_order_of_scores(data, words):
    count = len(words) - 1
    scores = data.draw(st.lists(st.floats(allow_nan=False), min_size=count, max_size=count))
    picture = Picture(draw_tree(words, [], scores))
    assert len(picture.bars) == count
    for split, bar in enumerate(picture.bars):
        assert picture.words[split][0] < bar["x"] + bar["width"] / 2 < picture.words[split + 1][0]
        assert picture.words[0][1] < bar["y"] and abs(bar["y"] + bar["height"] - 65) <= 1
    heights = [height for _, height in sorted((score, picture.bars[k]["height"]) for k, score in enumerate(scores))]
    assert heights == sorted(heights)
    if count and min(scores) < max(scores):
        assert heights[-1] > 8 * heights[0] > 0


def test_a_bar_tells_its_score_and_an_infinite_one_is_higher_than_all_others():
    svg = draw_tree("a b c d e".split(), [], [1.5, float("inf"), 3, float("-inf")])
    heights = [bar["height"] for bar in Picture(svg).bars]
    assert heights[3] < heights[0] < heights[2] < heights[1]
    assert "<title>a | b: 1.5</title>" in svg and "<title>b | c: inf</title>" in svg
    assert len({bar["height"] for bar in Picture(draw_tree(list("abc"), [], [2.0, 2.0])).bars}) == 1
    assert Picture(draw_tree(list("abc"), [])).bars == []


def test_marks_are_named_and_their_lines_differ_without_colour():
    marks = {(0, 1): "matched", (2, 3): "missed", (4, 5): "wrong"}
    constituents = [(0, 1, "NP"), (2, 3, ""), (4, 5, "PP"), (0, 5, "S")]
    picture = Picture(draw_tree("a new car was sold today".split(), constituents, marks=marks))
    assert picture.title((0, 1)) == "NP: a new (matched)"
    assert picture.title((2, 3)) == "car was (missed)"
    assert picture.title((4, 5)) == "PP: sold today (wrong)"
    assert picture.title((0, 5)) == "S: a new car was sold today"
    lines = [(path.get("stroke-dasharray"), path.get("stroke")) for path in map(picture.path, picture.nodes)]
    assert len({dashes for dashes, _ in lines}) == 3  # the unmarked one is solid, as the matched one
    assert len({colour for _, colour in lines}) == 4
    assert picture.path((0, 1)).get("stroke-dasharray") is None


def test_a_unary_chain_is_one_node_with_the_outer_label_first():
    tree = parse_brackets("(S (VP (NP (A a) (B b))) (C c))")
    assert Picture(draw_tree(tree.words, tree.constituents)).title((0, 1)) == "VP+NP: a b"
    assert Picture(draw_tree(["a", "b"], [(0, 1, ""), (0, 1, "S")])).title((0, 1)) == "S: a b"


def test_one_word_needs_no_constituent_and_may_have_one():
    assert Picture(draw_tree(["Yes"], [], [])).nodes == {}
    picture = Picture(draw_tree(["Yes"], [(0, 0, "INTJ")]))
    assert picture.place((0, 0))[0] == picture.words[0][0]


def test_wide_characters_take_more_room_and_combining_marks_none():
    plain, accented, wide = (Picture(draw_tree([word] * 9, [])).width for word in ("ee", "e\u0301e\u0301", "東京"))
    assert plain == accented and wide - plain > 9 * 12


def test_markup_stays_text_what_xml_forbids_is_replaced_and_blanks_are_seen():
    svg = draw_tree([ATTACK, "&amp;", 'a"b', "a\x00b", "\ud800", "\uffff", "", "c\nd"], [(0, 1, ATTACK)], title=ATTACK)
    shown = [text.text for text in Picture(svg).svg.findall(f"{SVG}text")]
    assert shown == [ATTACK, "&amp;", 'a"b', "a\ufffdb", "\ufffd", "\ufffd", "_", "c d"] and "<script" not in svg


@pytest.mark.parametrize("branch", [lambda k: (0, k + 1), lambda k: (k, 1999)], ids=["left", "right"])
def test_a_tree_2000_words_deep_is_drawn(branch):
    picture = Picture(draw_tree(["word"] * 2000, [(*branch(k), "X") for k in range(1999)], range(1999)))
    assert len(picture.nodes) == len(picture.bars) == 1999
    assert 50_000 < picture.height < 200_000 and 50_000 < picture.width < 200_000


@pytest.mark.parametrize(("arguments", "message"), [
    ({"constituents": [(0, 1, ""), (1, 2, "")]}, r"\(0, 1\) and \(1, 2\) cross"),
    ({"constituents": [(0, 3, "")]}, r"the span \(0, 3\) lies outside"),
    ({"split_scores": [1.0, float("nan")]}, "NaN"),
    ({"split_scores": [1.0]}, "split_scores must be 2 numbers, one per split point, got 1"),
    ({"marks": {(0, 1): "good"}, "constituents": [(0, 1, "")]}, "got 'good'"),
    ({"marks": {(0, 1): "wrong"}}, r"\(0, 1\), which is not a constituent"),
    ({"words": []}, "at least one word"),
])  # fmt: skip
def test_what_cannot_be_drawn_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        draw_tree(**{"words": ["a", "b", "c"], "constituents": []} | arguments)


def figures_of(fragment: str) -> tuple[Picture, Picture, list[str]]:
    """Gold, predicted, and the lines in words."""
    root = ElementTree.fromstring(fragment)
    gold, predicted = (Picture(figure.find(f"{SVG}svg")) for figure in root.iter("figure"))
    return gold, predicted, ["".join(line.itertext()).strip() for line in root.find("p")]


def test_a_comparison_says_in_words_what_it_shows():
    gold = parse_brackets("(S (NP (D a) (J new) (N car)) (VP (V was) (VP (V sold) (N today))))")
    predicted = from_spans(gold.words, [(0, 5), (0, 2), (1, 2), (3, 5), (3, 4)])
    gold_picture, picture, lines = figures_of(draw_comparison(gold.words, gold, predicted))
    assert lines == ["matched 2: a new car; was sold today", "missed 1: sold today", "not in gold 2: new car; was sold"]
    assert gold_picture.title((4, 5)) == "VP: sold today (missed)"
    assert picture.title((1, 2)) == "new car (wrong)"
    assert picture.title((0, 5)) == "a new car was sold today"  # no mark


@given(tree=a_tree(), data=st.data())
def test_every_span_but_the_sentences_is_matched_missed_or_wrong(tree, data):
    words, constituents = tree
    wide = [constituent for constituent in constituents if constituent[0] < constituent[1]]
    gold = LabelledTree(tuple(words), ("",) * len(words), tuple(wide), tuple(range(len(words))))
    spans = [span for span in sorted(gold.spans) if data.draw(st.booleans())]
    ends = st.integers(0, len(words) - 1)
    another = tuple(sorted((data.draw(ends), data.draw(ends))))
    predicted = from_spans(words, [*spans, *[another] * (not any(crosses(another, span) for span in spans))])
    gold_picture, picture, lines = figures_of(draw_comparison(words, gold, predicted))
    whole, shared = {(0, len(words) - 1)}, gold.spans & predicted.spans
    groups = {"matched": shared, "missed": gold.spans - shared, "not in gold": predicted.spans - shared}
    for line, (name, group) in zip(lines, groups.items(), strict=True):
        assert re.match(rf"{name} {len(group - whole)}\b", line)
    for drawing, other_mark in ((gold_picture, "missed"), (picture, "wrong")):
        for span in drawing.nodes.keys() - whole:
            assert drawing.title(span).endswith("(matched)" if span in shared else f"({other_mark})")


def test_both_trees_stand_over_the_same_columns():
    gold = parse_brackets("(S (ADJP/WITH (A a) (B b)) (SOMETHING (C c) (D d)))")
    gold_picture, picture, _ = figures_of(draw_comparison(gold.words, gold, from_spans(gold.words, [(0, 3), (1, 2)])))
    assert [x for x, _ in gold_picture.words] == [x for x, _ in picture.words]
    assert picture.width > Picture(draw_tree(gold.words, [])).width


def test_long_spans_are_shortened():
    words = [f"w{k}" for k in range(9)] + ["x" * 50]
    _, _, lines = figures_of(draw_comparison(words, from_spans(words, [(0, 8), (0, 9), (1, 8)]), from_spans(words, [])))
    assert lines[1] == "missed 2: w0 w1 w2 … w7 w8; w1 w2 w3 … w7 w8"
    _, _, lines = figures_of(draw_comparison(words, from_spans(words, [(8, 9)]), from_spans(words, [])))
    assert lines[1] == f"missed 1: w8 {'x' * 29}…"


def test_trees_of_other_words_are_refused():
    tree = from_spans(["a", "b"], [(0, 1)])
    with pytest.raises(ValueError, match="the predicted tree has 3 leaves, got 2 words"):
        draw_comparison(["a", "b"], tree, from_spans(["a", "b", "c"], []))
