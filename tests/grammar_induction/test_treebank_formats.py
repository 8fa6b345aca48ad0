"""Treebanks of other kinds read as the brackets that they stand for."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeling_fast_r2d2.grammar_induction import TreebankPreprocessing, read_treebank
from modeling_fast_r2d2.grammar_induction.treebank_formats import Node, tree_of_nodes

TIGER = """<?xml version="1.0" encoding="UTF-8"?>
<corpus id="c"><body>
<s id="s1"><graph root="502">
<terminals>
<t id="1" word="Darüber" pos="PROAV"/><t id="2" word="muß" pos="VMFIN"/><t id="3" word="nachgedacht" pos="VVPP"/>
<t id="4" word="werden" pos="VAINF"/><t id="5" word="." pos="$."/>
</terminals>
<nonterminals>
<nt id="500" cat="VP"><edge label="OP" idref="1"/><edge label="HD" idref="3"/></nt>
<nt id="501" cat="VP"><edge label="OC" idref="500"/><edge label="HD" idref="4"/></nt>
<nt id="502" cat="S"><edge label="OC" idref="501"/><edge label="HD" idref="2"/></nt>
</nonterminals></graph></s>
</body></corpus>
"""
EXPORT = """#FORMAT 3
#BOS 1 1 0 0
Darüber\tPROAV\t--\tOP\t500
muß\tVMFIN\t--\tHD\t502
nachgedacht\tVVPP\t--\tHD\t500
werden\tVAINF\t--\tHD\t501
.\t$.\t--\t--\t0
#500\tVP\t--\tOC\t501
#501\tVP\t--\tOC\t502
#502\tS\t--\t--\t0
#EOS 1
"""
CONLLU = """# sent_id = 1
# text = The old man bought it.
1\tThe\tthe\tDET\tDT\t_\t3\tdet\t_\t_
2\told\told\tADJ\tJJ\t_\t3\tamod\t_\t_
3\tman\tman\tNOUN\tNN\t_\t4\tnsubj:pass\t_\t_
4\tbought\tbuy\tVERB\tVBD\t_\t0\troot\t_\t_
5-6\tit.\t_\t_\t_\t_\t_\t_\t_\t_
5\tit\tit\tPRON\tPRP\t_\t4\tobj\t_\t_
5.1\tnothing\t_\t_\t_\t_\t_\t_\t_\t_
6\t.\t.\tPUNCT\t.\t_\t4\tpunct\t_\t_
"""
CESS = "(S (sn-SUJ (espec.fs (da0fs0 La el)) (grup.nom.fs (n luz luz))) (sn.e-SUJ *0*) (grup.verb (v va ir)) (Fp . .))"
ICEPAHC = """( (IP-MAT (NP-SBJ (PRO-N Hann-hann)) (BEDI var-vera) (NP-PRD (ADJ-N góður-góður) (N-N maður-maður))
    (CP-REL (WNP-1 0) (C sem-sem) (NP-SBJ *T*-1)) (, ,-,) (CODE <P_1>)) (ID 1150.X.SCI,.1))
"""
OTHER_PSD = ICEPAHC.replace("(CODE <P_1>)", '(" ") (P 0) (BEPI *)')
OTHER_CESS = CESS.replace("(Fp . .)", "(fpa -Fpa- -Fpa-) (v ya ya) (fpt -Fpt- -Fpt-)")
KEYAKI = "( (IP-MAT (NP-SBJ *pro*) (PP (NP (N 本)) (P を)) (VB 読ん) (AXD だ) (PU 。)) (ID 1_X-1922;JP))"


def read(tmp_path, name, text, **settings):
    (tmp_path / name).write_text(text, encoding="utf-8")
    [tree] = read_treebank(tmp_path / name, TreebankPreprocessing(**settings))
    return " ".join(tree.words), [tuple(constituent) for constituent in tree.constituents]


@pytest.mark.parametrize("name, text", [("t.xml", TIGER), ("t.export", EXPORT)])
def test_a_constituent_with_gaps_keeps_its_largest_block(tmp_path, name, text):
    words, constituents = read(tmp_path, name, text)
    assert words == "Darüber muß nachgedacht werden"
    assert constituents == [(2, 3, "VP"), (0, 3, "S")]  # "nachgedacht" alone is what the lower VP keeps
    assert read(tmp_path, name, text, keep_punctuation=True)[0].endswith(" .")


@pytest.mark.parametrize("encoding, is_packed", [("utf-8", True), ("iso-8859-1", False)])
def test_xml_may_be_compressed_and_names_its_own_encoding(tmp_path, encoding, is_packed):
    path = tmp_path / ("t.xml.gz" if is_packed else "t.xml")
    text = TIGER.replace("UTF-8", encoding).encode(encoding)
    path.write_bytes(gzip.compress(text) if is_packed else text)
    assert " ".join(read_treebank(path)[0].words) == "Darüber muß nachgedacht werden"


def test_the_number_0_is_a_word_and_an_empty_complementiser_is_none(tmp_path):
    assert read(tmp_path, "t.mrg", "(S (NP (CD 0) (NNS degrees)) (CP (C 0) (WNP-1 0) (VB is)))")[0] == "0 degrees is"


def test_words_of_the_export_format_may_have_other_kinds_of_blanks(tmp_path):
    words, constituents = read(tmp_path, "t.export", EXPORT.replace("nachgedacht", "10\u00a0000"))
    assert "10\u00a0000" in words and constituents == read(tmp_path, "s.export", EXPORT)[1]


def test_the_export_format_4_has_lemmas(tmp_path):
    lines = [line if line.startswith("#") and "\t" not in line else line.replace("\t", "\t--\t", 1)
             for line in EXPORT.replace("#FORMAT 3", "#FORMAT 4").splitlines()]  # fmt: skip
    assert read(tmp_path, "t.export", "\n".join(lines)) == read(tmp_path, "s.export", EXPORT)


def test_a_word_with_its_dependents_is_a_constituent(tmp_path):
    words, constituents = read(tmp_path, "t.conllu", CONLLU)
    assert words == "The old man bought it" and constituents == [(0, 2, "nsubj"), (0, 4, "root")]
    starred = CONLLU.replace("6\t.\t.", "6\t*\t*")  # Unicode calls it a symbol, its tag punctuation
    assert read(tmp_path, "s.conllu", starred)[0] == words


@pytest.mark.parametrize("name, text, words, constituents", [
    ("t.tbf", CESS, "La luz va", [(0, 1, "sn"), (0, 2, "S")]),
    ("t.psd", ICEPAHC, "Hann var góður maður sem", [(2, 3, "NP"), (0, 4, "IP")]),
    ("k.psd", KEYAKI, "本 を 読ん だ", [(0, 1, "PP"), (0, 3, "IP")]),
    ("k.psd", KEYAKI.replace("*pro*", "*"), "本 を 読ん だ", [(0, 1, "PP"), (0, 3, "IP")]),
    ("o.psd", OTHER_PSD, "Hann var góður maður sem", [(2, 3, "NP"), (0, 4, "IP")]),
    ("f.tbf", OTHER_CESS, "La luz va ya", [(0, 1, "sn"), (0, 3, "S")]),
])  # fmt: skip
def test_lemmas_traces_and_codes_of_brackets_are_left_out(tmp_path, name, text, words, constituents):
    assert read(tmp_path, name, text) == (words, constituents)


@st.composite
def graphs(draw):
    """Constituents over any words, as lists of the nodes above them; some words hang on the root."""
    number = draw(st.integers(1, 6))
    nodes = {f"#{node}": Node(f"N{node}", f"#{draw(st.integers(node + 1, number))}" if node < number else "")
             for node in range(number + 1)}  # fmt: skip
    words = [(draw(st.sampled_from("ww,")), Node("T", draw(st.sampled_from(["", *nodes]))))
             for _ in range(draw(st.integers(1, 12)))]  # fmt: skip
    return words, nodes


@given(graphs())
def test_constituents_never_cross_and_are_blocks_of_their_words(graph):
    words, nodes = graph

    def words_of(name):
        above = {name}
        while more := {child for child, node in nodes.items() if node.parent in above} - above:
            above |= more
        return {leaf for leaf, (_, node) in enumerate(words) if node.parent in above}

    tree = tree_of_nodes(words, nodes, "here")
    expected = []
    marks = {leaf for leaf, (word, _) in enumerate(words) if word == ","}
    for name, node in nodes.items():
        own, ends = words_of(name), words_of(name) - marks
        blocks = [(i, j) for i in ends for j in ends if i <= j and set(range(i, j + 1)) - marks <= own]
        if blocks:
            i, j = max(blocks, key=lambda block: (len(set(range(block[0], block[1] + 1)) - marks), -block[0]))
            i = max(leaf for leaf in range(i + 1) if leaf - 1 not in own)
            j = min(leaf for leaf in range(j, len(words)) if leaf + 1 not in own)
            expected += [(i, j, node.label)] if i < j else []
    assert sorted(map(tuple, tree.constituents)) == sorted(expected)
    spans = sorted(tree.spans)
    assert not any(i < k <= j < m for i, j in spans for k, m in spans)
    seen = [set(range(i, j + 1)) for i, j, _ in tree.constituents]
    assert not any(later < earlier for place, later in enumerate(seen) for earlier in seen[:place])


def test_a_damaged_gzip_file_of_xml_is_named(tmp_path):
    whole = bytearray(gzip.compress(TIGER.encode() * 9))
    whole[40] ^= 255
    (tmp_path / "t.xml.gz").write_bytes(whole)
    with pytest.raises(ValueError, match="t.xml.gz: not XML: "):
        read_treebank(tmp_path / "t.xml.gz")


@pytest.mark.parametrize("name, text, message", [
    ("t.xml", TIGER[:400], "not XML"),
    ("t.xml", TIGER.replace("UTF-8", "nonsense"), "not XML: unknown encoding"),
    ("t.export", EXPORT.replace("#501\tVP", "#505\tVP"), "no constituent #501"),
    ("t.export", EXPORT.replace("--\t--\t0\n#EOS", "--\t--\t500\n#EOS"), "above itself"),
    ("t.export", EXPORT.replace("--\t--\t0\n", "0\n", 1), "a word or constituent has 5 columns"),
    ("t.export", EXPORT.partition("#EOS")[0], "the sentence has no end"),
    ("t.export", EXPORT.partition("#EOS")[0] + EXPORT, "the sentence has no end"),
    ("t.conllu", CONLLU.replace("2\told\told\tADJ", "2 old old ADJ"), "no line of CoNLL-U"),
    ("t.conllu", CONLLU.replace("\t_\t3\tdet", "\t3\tdet"), "line 3: a word of CoNLL-U has 10 columns"),
    ("t.conllu", CONLLU.replace("\t_\t3\tdet", "\t_\t9\tdet"), "there is no constituent 9"),
])  # fmt: skip
def test_damaged_files_are_named(tmp_path, name, text, message):
    with pytest.raises(ValueError, match=f"{name}.*{message}"):
        read(tmp_path, name, text)
