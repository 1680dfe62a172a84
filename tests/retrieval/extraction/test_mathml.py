"""Formulas of web pages and OpenDocument files in one line of text."""

from __future__ import annotations

import pytest
from lxml import etree

from retrieval.extraction.mathml import mathml
from tests.retrieval.extraction.reading import read, written
from tests.retrieval.extraction.test_other_texts import odt
from tests.retrieval.packed import repacked

HEIGHT = (
    "<mrow><mi>h</mi><mo>=</mo><mfrac><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow><mn>2</mn></mfrac></mrow>"
    '<annotation encoding="StarMath 5.0">h = {a + b} over 2</annotation>'
)
DEEP = "<mrow>" * 200 + "<mi>x</mi>" + "</mrow>" * 200


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        (f"<semantics>{HEIGHT}</semantics>", "h = (a + b)/2"),
        ("<msup><mn>10</mn><mrow><mo>-</mo><mn>6</mn></mrow></msup>", "10^(- 6)"),
        ("<msub><mi>v</mi><mi>max</mi></msub><mo>≤</mo><msubsup><mi>k</mi><mn>1</mn><mn>2</mn></msubsup>",
         "v_max ≤ k_1^2"),
        ("<msqrt><mi>a</mi><mo>+</mo><mn>1</mn></msqrt>", "sqrt(a + 1)"),
        ("<mroot><mi>x</mi><mn>3</mn></mroot>", "root(3; x)"),
        ("<mi>f</mi><mo>\u2061</mo><mfenced><mi>x</mi><mi>y</mi></mfenced>", "f(x, y)"),
        ("<mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>2</mn></mtd></mtr><mtr><mtd><mn>3</mn></mtd></mtr></mtable>",
         "[1, 2; 3]"),
        (r'<mi>q</mi><annotation encoding="application/x-tex">\frac{q}{3}</annotation>', r"\frac{q}{3}"),
        ("", ""),
        (DEEP, ""),
    ],
)  # fmt: skip
def test_a_formula_is_one_line(inner, text):
    assert mathml(etree.fromstring(f'<math xmlns="http://www.w3.org/1998/Math/MathML">{inner}</math>')) == text


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (f"<p>Its height is <math><semantics>{HEIGHT}</semantics></math>.</p>", "Its height is h = (a + b)/2 ."),
        (r'<p>Area <math alttext="A=\pi r^{2}"><mi>A</mi></math> in all.</p>', r"Area A=\pi r^{2} in all."),
        ("<div><math><mi>z</mi><p>Not closed.</p><p>More.</p></div>", "z\n\nNot closed.\n\nMore."),
        ("<table><tr><th>Part<th>Size</tr><tr><td>Pier<td><math><mi>x</mi><mo>=</mo><mn>4</mn></math></tr></table>",
         "Part\tSize\nPart: Pier; Size: x = 4."),
        ('<p style="display:none"><math><mi>x</mi></math></p><p>Seen.</p>', "Seen."),
    ],
)  # fmt: skip
def test_formulas_of_web_pages_are_read(tmp_path, page, text):
    assert read(written(tmp_path, "made.html", f"<html><body>{page}</body></html>")).text == text


def test_formulas_of_an_opendocument_text_stand_in_their_sentence(tmp_path):
    body = (
        "<text:p>It is <draw:frame><draw:object xmlns:xlink='http://www.w3.org/1999/xlink' xlink:href='./Object 1'/>"
        "</draw:frame> high.</text:p>"
    )
    formula = f'<math xmlns="http://www.w3.org/1998/Math/MathML">{HEIGHT}</math>'
    path = repacked(odt(tmp_path, body), {}, {"Object 1/content.xml": formula.encode()}, "formula.odt")
    assert read(path).text == "It is h = (a + b)/2 high."
