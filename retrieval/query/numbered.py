"""Finds the parts of a document that a question names: by number ("section 3.2", "rule 8"), or as an option ("-P").

Of 80 questions about sections by number, of documents that it was not made for, 0.24 are right without it, 0.60 where
its sentences gain, and 0.97 where the blocks in which such a part begins are also found first; of 105 about options of
14 manuals 0.53 are right without it, 0.96 with it (benchmarks/quality/named_places.py).

Axes: S sentences, P blocks.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from retrieval.index.blocks import MemorySnapshot
from storage.catalogue import Catalogue

_NUMBER = re.compile(r"(?:\b([^\W\d_]{3,})|(§))\s?(\d{1,3}(?:\.\d{1,3})*)(?![\w.,:]*\d)")
_LABEL = re.compile(
    r"^[ \t#*]*(?:([^\W\d_]{3,}|§) ?)?\(?(\d{1,3}(?:\.\d{1,3})*)(?=[.):][ \t]+\S|[ \t]+[^\Wa-zà-ÿ_]|[.):]?$)", re.M
)
_LONGEST_BEFORE = 40  # characters of a line before its number
MOST_DOCUMENTS, MOST_BLOCKS = 8, 4
"""Documents whose text is looked through for a part, and blocks that come first because one begins there."""
_OPTION = re.compile(r"(?<![^\s(\[“\"'‘`])(--?[^\W\d_][\w-]*)")
_OPTION_LINE = re.compile(r"^[ \t]*(--?[^\W\d_](?:[^ \t\n]|[ \t](?![ \t]))*)", re.M)  # up to a gap
_PARTS = """
    § section sec chapter clause article paragraph rule item step point
    abschnitt kapitel klausel artikel absatz regel punkt schritt ziffer
    chapitre paragraphe règle étape sección capítulo cláusula artículo párrafo regla punto paso
"""
_DIVISIONS = frozenset(_PARTS.split())
"""What the parts of documents are called that begin with a number alone."""


def named_parts(question: str) -> set[tuple[str, str]]:
    """What a question names by a number, with the word before it, or as an option: {("rule", "8"), ("", "-P")}."""
    by_number = {((found[1] or found[2]).lower(), found[3]) for found in _NUMBER.finditer(question)}
    return by_number | {("", option) for option in _OPTION.findall(question)}


def numbered(text: str, word: str, number: str) -> Iterator[tuple[int, int]]:
    """(start, end) of the parts with a number: from a line that begins with it, alone or with its word, to the next
    such line that is not part of it; or of what explains an option, to the line of the next."""
    if not word:
        lines = [(line.start(), _OPTION.findall(line[1])) for line in _OPTION_LINE.finditer(text)]
        for (start, options), (following, _) in pairwise([*lines, (len(text), [])]):
            if number in options:
                yield start, following
        return
    at = text.find(number)
    while at >= 0:
        start = text.rfind("\n", max(0, at - _LONGEST_BEFORE), at) + 1
        found = _LABEL.match(text, start) if start or at <= _LONGEST_BEFORE else None
        if found is not None and found.span(2) == (at, at + len(number)) and _is_label(found, word):
            further = (each for each in _LABEL.finditer(text, found.end()) if _is_label(each, word))
            behind = (each.start() for each in further if not each[2].startswith(f"{number}."))
            yield start, next(behind, len(text))
        at = text.find(number, at + 1)


def _long(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Without those that are short beside the longest: lines of a list of contents."""
    found = list(spans)
    longest = max((end - start for start, end in found), default=0)
    return [(start, end) for start, end in found if 4 * (end - start) >= longest]


def _is_label(found: re.Match[str], word: str) -> bool:
    return found[1].lower() == word if found[1] else word in _DIVISIONS


def in_numbered(
    question: str, texts: Mapping[str, str], documents_S: Sequence[str], starts_S: Sequence[int]
) -> list[bool]:
    """Whether each sentence is in a part that the question names by number; `starts_S`: where it begins in its
    document."""
    spans = {
        document: [span for word, number in named_parts(question) for span in _long(numbered(text, word, number))]
        for document, text in texts.items()
    }
    return [
        any(start <= begins < end for start, end in spans.get(document, ()))
        for document, begins in zip(documents_S, starts_S, strict=True)
    ]


def blocks_of_parts(
    catalogue: Catalogue,
    snapshot: MemorySnapshot,
    named: Collection[tuple[str, str]],
    indices_P: Tensor,
    documents: Sequence[str],
) -> Tensor:
    """Which of some blocks, those that hold the numbers, begin a part that a question names: at most MOST_BLOCKS, of
    the first of `documents` that has one, the longest part first, since a list of contents has the number too, and the
    block behind that, in which it goes on."""
    found: dict[int, int] = {}  # block id -> characters of the part
    documents_P = snapshot.documents_of(indices_P)
    for document in documents[:MOST_DOCUMENTS]:
        ids = [
            snapshot.blocks.ids_N[at]
            for at, one in zip(indices_P.tolist(), documents_P, strict=True)
            if one == document
        ]
        rows = catalogue.blocks_by_id(ids)
        text = catalogue.extracted_text(document).text
        for start, end in (span for word, number in named for span in numbered(text, word, number)):
            for id_, row in rows.items():
                if row.start < start + _LONGEST_BEFORE and start < row.end:
                    found[id_] = max(found.get(id_, 0), end - start)
        if found:
            break
    first = sorted(found, key=lambda id_: -found[id_])[:MOST_BLOCKS]
    if not first:
        return torch.zeros(0).long()
    begin_P = torch.cat([snapshot.indices_of_blocks([id_]) for id_ in first])
    document_N = snapshot.document_N
    behind = [
        at + 1 for at in begin_P[:1].tolist() if at + 1 < len(document_N) and document_N[at] == document_N[at + 1]
    ]
    return torch.cat([begin_P[:1], torch.tensor(behind, dtype=torch.long), begin_P[1:]])
