"""Formulas in MathML, as web pages, e-books and OpenDocument files hold them, in one line of text, much like LaTeX."""

from __future__ import annotations

from lxml import etree

_DEEPEST = 50
_OPERATORS = set("=+-\u2212±×·÷<>≤≥≠≈→∈")
_INVISIBLE = str.maketrans("", "", "\u2061\u2062\u2063\u2064")  # "applied to", "times"


def mathml(element: etree._Element) -> str:
    """A formula in one line: "h = (a + b)/2", "x^2", "sqrt(a + b)"; as its author wrote it where the file says so in
    LaTeX."""
    written = element.get("alttext") or next(
        (one.text for one in element.iter("{*}annotation") if "tex" in one.get("encoding", "").lower()), None
    )
    return " ".join((written or _text(element, 0)).split())


def formula_of_page(source: str) -> str:
    """As `mathml`, of the words of a web page from <math> to </math>."""
    page = etree.fromstring(source.encode("utf-8", "replace"), etree.HTMLParser(encoding="utf-8", no_network=True))
    formula = next(page.iter("math"), None)
    return "" if formula is None else mathml(formula)


def grouped(text: str) -> str:
    """In brackets where it is more than one word or number."""
    plain = text.replace(".", "").replace(",", "").replace("-", "", 1)
    return text if plain.isalnum() or (text[:1] == "(" and text[-1:] == ")") else f"({text})"


def _name(element: etree._Element) -> str:
    return str(element.tag).rpartition("}")[2] if isinstance(element.tag, str) else ""


def _text(element: etree._Element, depth: int) -> str:
    tag = _name(element)
    if depth > _DEEPEST or not tag or tag.startswith("annotation"):
        return ""
    if not len(element):
        text = " ".join((element.text or "").translate(_INVISIBLE).split())
        return f" {text} " if text in _OPERATORS else text
    texts = [_text(child, depth + 1) for child in element]
    parts = [text.strip() for text in texts if text.strip()]
    if tag == "mfrac" and len(parts) == 2:
        return f"{grouped(parts[0])}/{grouped(parts[1])}"
    if tag in ("msup", "mover") and len(parts) == 2:
        return f"{grouped(parts[0])}^{grouped(parts[1])}"
    if tag in ("msub", "munder") and len(parts) == 2:
        return f"{parts[0]}_{grouped(parts[1])}"
    if tag in ("msubsup", "munderover") and len(parts) == 3:
        return f"{parts[0]}_{grouped(parts[1])}^{grouped(parts[2])}"
    if tag == "mroot" and len(parts) == 2:
        return f"root({parts[1]}; {parts[0]})"
    if tag == "mtable":
        return f"[{'; '.join(parts)}]"
    if tag == "mtr":
        return ", ".join(parts)
    if tag == "mfenced":
        return f"{element.get('open', '(')}{', '.join(parts)}{element.get('close', ')')}"
    return f"sqrt({''.join(texts).strip()})" if tag == "msqrt" else "".join(texts)
