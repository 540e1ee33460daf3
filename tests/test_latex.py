"""LaTeX and MathML to the normal form of CROHME's labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ink2tex.data.audit import Audit, audit, cause, main, read_inks, table
from ink2tex.data.captions import read_captions
from ink2tex.errors import LatexError
from ink2tex.ink import Ink, Symbol
from ink2tex.latex import mathml_to_tokens, normalise, tokenise, truth_tokens
from ink2tex.latex.inked import ink_classes
from ink2tex.vocabulary import CROHME_SYMBOLS, Vocabulary


def toks(label: str) -> list[str]:
    return label.split()


@pytest.mark.parametrize(
    ("latex", "tokens"),
    [
        (r"\frac12x", r"\frac 1 2 x"),
        (r"\alpha\beta", r"\alpha \beta"),
        (r"\{ a\}", r"\{ a \}"),
        ("a  \n b", "a b"),
        (r"M\ltN", r"M \lt N"),
        (r"\operatorname*{x}", r"\operatorname { x }"),
    ],
)
def test_tokenise(latex: str, tokens: str) -> None:
    assert tokenise(latex) == tokens.split()


@pytest.mark.parametrize(
    ("latex", "label"),
    [
        # as it stands in files of the sources: HAMEX, KAIST, MathBrush, expressmatch, MfrDB, the test sets
        (r"$\phi(x)$", r"\phi ( x )"),
        (r"\int_a^b \frac {\sqrt x} 2 d x", r"\int _ { a } ^ { b } \frac { \sqrt { x } } { 2 } d x"),
        (
            r"\frac { { p - { \mbox { e } + k } } } { \left ( \sigma \right ) }",
            r"\frac { p - e + k } { ( \sigma ) }",
        ),
        (r"$\Bigg( \sum_{i=1}^{n} x\Bigg)r^2$", r"( \sum _ { i = 1 } ^ { n } x ) r ^ { 2 }"),
        (r"${6^{6}} \cdot {( {6^{x}} )^{4}}$", r"6 ^ { 6 } \cdot ( 6 ^ { x } ) ^ { 4 }"),
        (r"$\lim_{y \to \infty} y$", r"\lim _ { y \rightarrow \infty } y"),
        (r"$\int\limits_{0}^{1} \sqrt{x} dx$", r"\int \limits _ { 0 } ^ { 1 } \sqrt { x } d x"),
        (r"$ \lim \limits _ {x \rightarrow 0} x$", r"\lim _ { x \rightarrow 0 } x"),
        (r"$\sum\limits^{n}_{i} i$", r"\sum _ { i } ^ { n } i"),
        (r"$\!\mathrm{Nm}$", "N m"),
        (r"$\ $10,000 + $1,000$", "1 0 , 0 0 0 + 1 , 0 0 0"),
        (r"$ | x \parallel y | $", "| x | | y |"),
        (r"$ x \lbrack \infty \rbrack \;$", r"x [ \infty ]"),
        (r"\sqrt[3]{2}", r"\sqrt [ 3 ] { 2 }"),
        (r"$f^{'}(x)$", "f ^ { ' } ( x )"),
        (r"$x\prime\sin\theta$", r"x \prime \sin \theta"),
        # as people write otherwise
        (r"\[a \le b \ge c \ne d\]", r"a \leq b \geq c \neq d"),
        (r"\dfrac{1}{2}+\tfrac34", r"\frac { 1 } { 2 } + \frac { 3 } { 4 }"),
        (r"{a \over b+c}d", r"\frac { a } { b + c } d"),
        (r"a \over b", r"\frac { a } { b }"),
        (r"\left.\frac12\right|_0^1", r"\frac { 1 } { 2 } | _ { 0 } ^ { 1 }"),
        (r"\left[0,1\right]", "[ 0 , 1 ]"),
        (r"x^2_i", "x _ { i } ^ { 2 }"),
        (r"x_{a_b}^c", "x _ { a _ { b } } ^ { c }"),
        ("f''(x)", r"f ^ { \prime \prime } ( x )"),
        ("f'^2", r"f ^ { \prime 2 }"),
        (r"\operatorname{sin}x+\mathrm{in}", r"\sin x + i n"),
        (r"1 , \dots , n \quad a~b", r"1 , \ldots , n a b"),
        (r"y _ {}, z", "y , z"),
        (r"\hat x\overline{ab}", r"\hat { x } \overline { a b }"),
        (r"\sqrt[\frac12]x", r"\sqrt [ \frac { 1 } { 2 } ] { x }"),
    ],
)
def test_normalise(latex: str, label: str) -> None:
    assert normalise(latex) == label.split()


@pytest.mark.parametrize(
    ("latex", "what"),
    [
        ("{a", "never closed"),
        ("a+b}", "character 4 .* closes nothing"),
        (r"\sqrt[3{x}", "never closed"),
        (r"x+\foo", r"character 3 .* unknown command '\\\\foo'"),
        (r"\alhpa", r"did you mean '\\\\alpha'"),
        (r"\begin{matrix}a\end{matrix}", "unknown command"),
        ("x_a_b", "a second '_'"),
        ("x^", "needs something"),
        (r"\frac1", "needs something"),
        (r"\left", "needs a bracket"),
        ("a & b", "no place"),
        ("x\\", "backslash at the very end"),
        ("", "nothing that is written"),
        ("$ $", "nothing that is written"),
        ("{" * 5000, "deep"),
        (r"\sqrt " * 5000, "deep"),
        (r"\left " * 5000, "deep"),
    ],
)
def test_broken_latex_is_explained(latex: str, what: str) -> None:
    with pytest.raises(LatexError, match=what):
        normalise(latex)


atoms = st.sampled_from([s for s in CROHME_SYMBOLS if s not in toks(r"{ } ^ _ \limits \frac \sqrt <eol> [ ] ' \prime")])


def _groups(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    row = st.lists(inner, min_size=1, max_size=3).map(" ".join)
    return st.one_of(
        st.builds(r"\frac {{ {} }} {{ {} }}".format, row, row),
        st.builds(r"\sqrt {{ {} }}".format, row),
        st.builds(r"\sqrt [ {} ] {{ {} }}".format, row, row),
        st.builds("{} _ {{ {} }}".format, atoms, row),
        st.builds("{} _ {{ {} }} ^ {{ {} }}".format, atoms, row, row),
        st.builds(r"\int \limits _ {{ {} }}".format, row),
    )


labels = st.lists(st.recursive(atoms, _groups, max_leaves=12), min_size=1, max_size=4).map(" ".join)


@given(labels)
def test_labels_are_in_normal_form_already(label: str) -> None:
    assert normalise(label) == label.split()
    assert normalise(label.replace(" ", "  ")) == label.split()


@given(st.text("{}[]^_$'& \\abc12", max_size=30))
def test_any_text_gives_a_label_or_a_latex_error(text: str) -> None:
    try:
        tokens = normalise(text)
    except LatexError:
        return
    assert normalise(" ".join(tokens)) == tokens


def math(body: str) -> str:
    return f'<math xmlns="http://www.w3.org/1998/Math/MathML">{body}</math>'


X, Y, Z = "<mi>x</mi>", "<mi>y</mi>", "<mi>z</mi>"


@pytest.mark.parametrize(
    ("body", "label"),
    [
        (f"<mrow>{X}<mrow><mo>+</mo><mn>12</mn></mrow></mrow>", "x + 1 2"),
        (f"<msub>{X}{Y}</msub>", "x _ { y }"),
        (f"<msup>{X}<mrow>{Y}{Z}</mrow></msup>", "x ^ { y z }"),
        (f"<msubsup><mo>\\int</mo>{Y}{Z}</msubsup>", r"\int _ { y } ^ { z }"),
        (f"<munderover><mo>int</mo>{Y}{Z}</munderover>", r"\int \limits _ { y } ^ { z }"),
        (f"<munderover><mo>sum</mo>{Y}{Z}</munderover>", r"\sum _ { y } ^ { z }"),
        (f"<munder><mo>im</mo>{Y}</munder>", r"\lim _ { y }"),
        (f"<mover><mo>∑</mo>{Y}</mover>", r"\sum ^ { y }"),
        (f"<mfrac>{X}<msqrt>{Y}{Z}</msqrt></mfrac>", r"\frac { x } { \sqrt { y z } }"),
        (f"<mroot>{X}<mn>3</mn></mroot>", r"\sqrt [ 3 ] { x }"),
        (f"<mfenced>{X}{Y}</mfenced>", "( x , y )"),
        (f'<mfenced open="[" close=")" separators="">{X}{Y}</mfenced>', "[ x y )"),
        (f"<mstyle>{X}<mspace/><mo>&#x2062;</mo>{Y}</mstyle>", "x y"),
        ("<mo>\\lt</mo><mo>gt</mo><mi>alpha</mi><mo>{</mo><mo>rarr</mo>", r"< > \alpha \{ \rightarrow"),
        ("<mtext>ab</mtext><mo>ctdot</mo><mo>hellip</mo>", r"a b \cdots \ldots"),
    ],
)
def test_mathml(body: str, label: str) -> None:
    assert mathml_to_tokens(math(body)) == label.split()


@pytest.mark.parametrize(
    ("mathml", "what"),
    [
        (math("<mtable/>"), "<mtable>"),
        (math(f"<mfrac>{X}</mfrac>"), "<mfrac> has 1 children"),
        (math("<mi>\\nonsense</mi>"), "no known symbol"),
        (math(""), "nothing that is written"),
        ("<math>", "not well-formed"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><math><mi>&b;</mi></math>', "DTD"),
    ],
)
def test_bad_mathml_is_explained(mathml: str, what: str) -> None:
    with pytest.raises(LatexError, match=what):
        mathml_to_tokens(mathml)


def test_ink_classes() -> None:
    tokens = toks(r"\sqrt [ n [ 1 ] ] { \frac { a } { [ ' } } _ { < } \limits")
    classes = toks(r"\sqrt . n [ 1 ] . . - . a . . [ \prime . . . . < . .")
    assert ink_classes(tokens) == [None if c == "." else c for c in classes]


def written(labels: str, truth: str | None, mathml: str | None, spare: int = 0) -> Ink:
    """Ink with one stroke for each symbol, and `spare` strokes that belong to none."""
    names = labels.split()
    strokes = tuple(np.array([[i, 0]], np.float32) for i in range(len(names) + spare))
    return Ink(strokes, "u", truth, mathml, tuple(Symbol(name, (i,)) for i, name in enumerate(names)))


def test_truth_prefers_the_annotation() -> None:
    other = math("<mi>a</mi><mi>b</mi>")
    assert truth_tokens(written("b a", "$ba$", other)) == ["b", "a"]
    assert truth_tokens(written("x y", "$ba$", other)) == ["b", "a"]
    assert truth_tokens(written("a b", "$b{a$", other)) == ["a", "b"]
    assert truth_tokens(written("a b", None, other)) == ["a", "b"]


def test_truth_follows_the_ink_where_the_annotation_contradicts_it() -> None:
    log = math("<mo>log</mo><mi>x</mi>")
    assert truth_tokens(written(r"\log x", "$l o g x$", log)) == [r"\log", "x"]
    # three letters were written, and three letters they stay
    assert truth_tokens(written("l o g x", "$l o g x$", log)) == list("logx")
    # strokes without a symbol: the segmentation is incomplete and proves nothing
    assert truth_tokens(written(r"\log x", "$l o g x$", log, spare=1)) == list("logx")


def test_no_truth() -> None:
    with pytest.raises(LatexError, match="u: holds no truth"):
        truth_tokens(written("a", None, None))
    with pytest.raises(LatexError, match=r"u: at character 1 .* never closed"):
        truth_tokens(written("a", "{", None))


def test_causes() -> None:
    ink = written("x", "$x$", None)
    assert "superscript first" in cause(toks("x _ { i } ^ { 2 }"), toks("x ^ { 2 } _ { i }"), ink)
    assert "rounds" in cause(toks("6 . 0"), ["6"], ink)
    assert "differs from the annotation" in cause(["x"], ["y"], ink)
    assert "contradicts the ink" in cause(["z"], ["y"], ink)


def test_training_labels_equal_the_published_ones(train_audit: Audit) -> None:
    assert train_audit.labels == 8835
    assert train_audit.match_rate >= 0.993, table(train_audit)
    assert not train_audit.unknown
    # What is left is known: the published label is the odd one.
    known = sum(
        len(train_audit.mismatches[f"published label {c}"])
        for c in ("has the superscript first", "rounds the number that was written")
    )
    assert known >= 55


def test_labels_of_the_2014_test_equal_the_published_ones(crohme: Path) -> None:
    report = audit(read_inks(crohme / "test2014_inkml.tar.xz"), read_captions(crohme / "test2014_caption.txt"))
    assert report.labels == 986
    assert report.match_rate >= 0.989, table(report)
    assert not report.unknown


def test_labels_of_the_2013_test_are_in_the_vocabulary(crohme: Path) -> None:
    vocabulary = Vocabulary()
    inks = list(read_inks(crohme / "test2013_inkml.tar.xz"))
    assert len(inks) == 671
    assert all(token in vocabulary for ink in inks for token in truth_tokens(ink))


def test_audit_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    template = "<ink><annotation type='truth'>{}</annotation><trace>1 2</trace></ink>"
    (tmp_path / "a.inkml").write_text(template.format("$x^2$"))
    (tmp_path / "b.inkml").write_text(template.format("$7.0$"))
    captions = tmp_path / "caption.txt"
    captions.write_text("a\tx ^ { 2 }\nb\t7\n")
    assert main([str(tmp_path), str(captions)]) == 0
    out = capsys.readouterr().out
    assert "1 of 2 (50.00%)" in out
    assert "1  published label rounds the number" in out
    assert main([]) == main([str(tmp_path / "none"), str(captions)]) == 2
