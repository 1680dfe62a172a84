"""A document's description: what kind of file it is, how it begins, what it speaks of most, and what it can be asked.

It lies beside the page pictures and may be deleted like them: it is made again. All but the questions is made at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from model.scoring.sentences import sentence_borders
from retrieval.describing.candidates import Candidate, candidates
from retrieval.describing.key_terms import key_terms
from retrieval.query.sentences import Asides
from retrieval.types.records import Description, Document

FILE = "description.json"
FORMAT = 2
_FIRST_LINES = 240  # characters
_SHORTEST_OPENING = 45
_OPENING = 8000
_LOOKED_AT = 400_000  # characters of a long document that are searched for terms and questions
_KINDS = {"pdf": "PDF", "docx": "Word document", "html": "web page", "md": "Markdown", "txt": "text"}


def describe(document: Document, text: str, questions: Sequence[str] = ()) -> Description:
    """Without asking anything."""
    return Description(
        document_id=document.id,
        kind=_KINDS.get(document.kind, document.kind.upper()),
        first_lines=_first_lines(text, document.title),
        key_terms=tuple(key_terms(text[:_LOOKED_AT])),
        questions=tuple(questions),
    )


def _first_lines(text: str, title: str) -> str:
    """The first sentences that are more than a heading, licences and the like left out; the first lines where there
    are none."""
    beside = Asides(text[:_OPENING])
    borders = [span for span in sentence_borders(text, 0, min(len(text), _OPENING)) if span[0] not in beside]
    lines = [" ".join(text[start:stop].split()) for start, stop in borders]
    lines = [each for each in lines if each and each.casefold() != title.casefold()]
    prose = next((at for at, each in enumerate(lines) if _is_prose(each)), 0)
    opening = " ".join(lines[prose : prose + 4])
    if len(opening) <= _FIRST_LINES:
        return opening
    return opening[:_FIRST_LINES].rsplit(" ", 1)[0].rstrip(" ,;:") + "…"


def _is_prose(line: str) -> bool:
    """A sentence, neither a heading nor a row of a table."""
    cells = re.search(r"\S: \S.*; \S|\.\.\.", line)
    return (
        len(line) >= _SHORTEST_OPENING
        and not line[0].islower()
        and not cells
        and bool(re.search(r"[^\W\d_]{2}[.!?]$|[。！？]$", line))
    )


def ranked_candidates(text: str, terms: Sequence[str]) -> list[Candidate]:
    """The questions of a text, the most promising first: about what it speaks of most, and each subject once."""
    text = text[:_LOOKED_AT]
    asides = Asides(text)
    spoken_of = text.casefold()
    words = {word.rstrip("s") for term in terms for word in term.casefold().split()}
    best: dict[str, tuple[float, Candidate]] = {}
    for candidate in candidates(text, asides.__contains__):
        subject = candidate.subject.casefold().removeprefix("the ").removeprefix("a ").removeprefix("an ")
        times = min(spoken_of.count(subject), 12)
        central = any(word.rstrip("s") in words for word in subject.split())
        worth = candidate.worth * (1 + 0.15 * times + 0.6 * central)
        if subject not in best or best[subject][0] < worth:
            best[subject] = (worth, candidate)
    return [candidate for _, candidate in sorted(best.values(), key=lambda each: -each[0])]


def kept(folder: Path) -> Description | None:
    """What is kept in a document's folder; None if nothing of this release."""
    try:
        plain = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(plain, dict) or plain.pop("format", None) != FORMAT:
        return None
    return Description.from_dict(plain)


def keep(folder: Path, description: Description) -> None:
    folder.mkdir(exist_ok=True, mode=0o700)
    unfinished = folder / f".{FILE}"
    unfinished.write_text(json.dumps({"format": FORMAT, **description.to_dict()}), encoding="utf-8")
    unfinished.replace(folder / FILE)
