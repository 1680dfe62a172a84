"""A document, or a page of it, as a citation to take away: text, BibTeX, CSL-JSON.

Author, date and language are properties of the document; what is not known is left out, never guessed.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from retrieval.library import Library
from retrieval.types.answers import Answer
from retrieval.types.records import Document

_SPECIAL = str.maketrans({
    "\\": r"\textbackslash{}", "{": r"\textbraceleft{}", "}": r"\textbraceright{}", "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
})  # fmt: skip

Cited = tuple[Document, str]
"""A document, and the labels of its pages, separated by commas, or ""."""


def as_text(cited: Sequence[Cited]) -> str:
    """A line each: `Ann Lee, Ben Ray: The dam. 2024-01-31. dam.pdf, page 12.`"""
    return "\n".join(_line(document, page) for document, page in cited)


def _line(document: Document, page: str) -> str:
    authors = ", ".join(document.properties.get("author", ()))
    where = f"{document.source}, {'pages' if ',' in page else 'page'} {page}" if page else document.source
    parts = [f"{authors}: {document.title}" if authors else document.title, _first(document, "date"), where]
    return " ".join(f"{part.rstrip('.')}." for part in parts if part)


def as_bibtex(cited: Sequence[Cited]) -> str:
    """An `@misc` entry each. BibTeX reads years; biblatex also `date` and `langid`."""
    return "\n\n".join(_entry(*one) for one in _keyed(cited))


def _entry(key: str, document: Document, page: str) -> str:
    date = _first(document, "date")
    fields = {
        "title": f"{{{document.title.translate(_SPECIAL)}}}",
        "author": " and ".join(f"{{{one.translate(_SPECIAL)}}}" for one in document.properties.get("author", ())),
        "year": date[:4],
        "date": date,
        "language": _first(document, "language").translate(_SPECIAL),
        "keywords": ", ".join(document.properties.get("keyword", ())).translate(_SPECIAL),
        "howpublished": document.source.translate(_SPECIAL),
        "pages": page.translate(_SPECIAL),
    }
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
    return "\n".join([f"@misc{{{key},", *lines, "}"])


def as_csl(cited: Sequence[Cited]) -> str:
    """A list of items, as reference managers import it."""
    return json.dumps([_item(*one) for one in _keyed(cited)], ensure_ascii=False, indent=1)


def _item(key: str, document: Document, page: str) -> dict[str, Any]:
    date = _first(document, "date")
    item: dict[str, Any] = {"id": key, "type": "document", "title": document.title}
    if authors := document.properties.get("author"):
        item["author"] = [{"literal": author} for author in authors]
    if date:
        item["issued"] = {"date-parts": [[int(part) for part in date.split("-")]]}
    said = {"language": _first(document, "language"), "page": page, "source": document.source}
    said["keyword"] = ", ".join(document.properties.get("keyword", ()))
    return item | {name: value for name, value in said.items() if value}


def of_answer(library: Library, answer: Answer, kind: str) -> str:
    """Each document that the answer is taken from, with its pages: those cited, else of the sentence quoted, else of
    the best passage."""
    cited = [answer.passages[one.passage] for one in answer.citations]
    quoted = [answer.quotation.passage] if answer.quotation is not None else []
    pages: dict[str, list[str]] = {}
    for passage in cited or quoted or answer.passages[:1]:
        found = pages.setdefault(passage.document_id, [])
        found += [label for label in passage.page_labels if label and label not in found]
    return FORMATS[kind]([(library.documents.get(key), ", ".join(labels)) for key, labels in pages.items()])


FORMATS: Mapping[str, Callable[[Sequence[Cited]], str]] = {"text": as_text, "bibtex": as_bibtex, "csl-json": as_csl}


def _keyed(cited: Sequence[Cited]) -> Iterator[tuple[str, Document, str]]:
    """Each behind its `key_of`; of several alike the second has `-2` at the end, since programs take a key once."""
    given = Counter[str]()
    for document, page in cited:
        key = key_of(document)
        given[key] += 1
        yield key if given[key] == 1 else f"{key}-{given[key]}", document, page


def key_of(document: Document) -> str:
    """`lee2024dam`: family name of the first author, year, first long word of the title; always ASCII."""
    author = _first(document, "author")
    names = author.replace(",", " ").split() or [""]
    family = names[0] if "," in author else names[-1]
    words = [word for word in re.split(r"\W+", _ascii(document.title)) if len(word) > 3]
    key = "".join((_ascii(family), _first(document, "date")[:4], (words or [""])[0]))
    return re.sub(r"[^a-z0-9]", "", key) or f"document{document.id[:8]}"


def _first(document: Document, name: str) -> str:
    return next(iter(document.properties.get(name, ())), "")


def _ascii(text: str) -> str:
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
