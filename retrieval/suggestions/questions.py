"""A document's description: its kind of file, its first lines, its keyphrases, and questions that it answers.

- It is stored next to the page pictures and may be deleted like them: it is made again. Only the questions take time.
- Questions are made from sentences of the document by moving their parts, by few and strict patterns, in English. What
  is unclear outside its sentence ("this", "the following") is not asked for, nor anything in boilerplate: references,
  licences, repeated lines. Whether the document answers a question is found out by asking it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from model.scoring.sentences import sentence_borders
from retrieval.suggestions.keyphrases import asked_verbs, key_terms, word_class
from retrieval.types.records import Description, Document
from storage.blobs.files import write_durably

Span = tuple[int, int]

_PARAGRAPH = re.compile(r"[^\n](?:[^\n]+|\n(?!\s*\n))*")
_REFERENCES = re.compile(
    r"(?:(?:\d{1,2}|[IVX]{1,4}|[A-Z])\.?\s+)?(?:references|bibliography|works cited|literature(?: cited)?"
    r"|literatur(?:verzeichnis)?|références|bibliographie|referencias|bibliografía)\s*:?",
    re.I,
)
_CITED = re.compile(r"\b(?:19|20)\d\d[a-z]?\b|\bet al\b|\bdoi\b|https?:|\bpp\.|\bVol\.|\bIn\s+Proc|arXiv", re.I)
_ANY_HEADING = re.compile(
    r"(?:(?:\d{1,2}(?:\.\d{1,2})*|[A-Z]|[IVX]{1,4})\.?\s+)?[A-Z][\w’'-]*(?:[ :&/]+[\w’'()–-]+){0,8}"
)
_LICENCE = re.compile(
    r"creative\s+commons|all\s+rights\s+reserved|retain\s+copyright|copyright\s+(?:\(c\)|©|\d{4}|holder)|(?:©|\(c\))\s*\d{4}"
    r"|licensed\s+under|permission\s+to\s+make\s+digital|under\s+the\s+terms\s+of\s+the\s+licen[cs]e|CC[ -]BY",
    re.I,
)
_LONGEST_LICENCE = 700  # characters of a paragraph; a longer one is about more than its licence
_LONGEST_HEAD = 160
_OFTEN = 4  # times that a line stands in the document before it counts as repeated
_FEWEST_CITED = 0.6  # of the paragraphs of a list of references
_DIGITS = re.compile(r"\d+")


class Boilerplate:
    """The parts of a text that are not about its subject: references, licences, names of columns, repeated lines.

    They are found in the text alone, so this works for documents of every release.
    """

    def __init__(self, text: str):
        found = sorted([*_references(text), *_licences(text), *_repeated(text), *_column_names(text)])
        self._starts = [start for start, _ in found]
        self._ends: list[int] = []
        for _, end in found:  # the furthest end so far, because spans may overlap
            self._ends.append(max(end, self._ends[-1] if self._ends else 0))

    def __contains__(self, position: int) -> bool:
        before = bisect_right(self._starts, position)
        return before > 0 and position < self._ends[before - 1]


def _paragraphs(text: str) -> Iterator[tuple[Span, str]]:
    for match in _PARAGRAPH.finditer(text):
        yield match.span(), match[0].strip()


def _references(text: str) -> Iterator[Span]:
    """From a heading "References" to the next heading, if most of what stands between cites something."""
    begun: int | None = None
    last = 0
    cites: list[bool] = []
    for (start, end), paragraph in [*_paragraphs(text), ((len(text), len(text)), "The End")]:
        if begun is not None and (_is_heading(paragraph) or start == len(text)):
            if cites and sum(cites) >= _FEWEST_CITED * len(cites):
                yield begun, last
            begun = None
        if _REFERENCES.fullmatch(paragraph):
            begun, cites = start, []
        elif begun is not None:
            cites.append(bool(_CITED.search(paragraph)))
        last = end


def _is_heading(paragraph: str) -> bool:
    return len(paragraph) < 80 and not _CITED.search(paragraph) and bool(_ANY_HEADING.fullmatch(paragraph))


def _licences(text: str) -> Iterator[Span]:
    for span, paragraph in _paragraphs(text):
        if len(paragraph) <= _LONGEST_LICENCE and _LICENCE.search(paragraph):
            yield span


def _repeated(text: str) -> Iterator[Span]:
    lines = [(match.span(), _DIGITS.sub("#", match[0].strip().lower())) for match in re.finditer(r"[^\n]+", text)]
    counts = Counter(line for _, line in lines)
    for span, line in lines:
        if counts[line] >= _OFTEN and 0 < len(line) <= _LONGEST_HEAD:
            yield span


def _column_names(text: str) -> Iterator[Span]:
    """Lines of cells whose text stands before those of the next line."""
    start = 0
    lines = text.split("\n")
    for line, following in zip(lines, lines[1:], strict=False):
        if "\t" in line and any(f"{name}: " in following for name in line.split("\t") if name):
            yield start, start + len(line)
        start += len(line) + 1


FILE = "description.json"
FORMAT = 2
_FIRST_LINES = 240  # characters
_SHORTEST_OPENING = 45
_OPENING = 8000
_LOOKED_AT = 400_000  # characters of a long document that are searched for terms and questions
_KIND_WORDS = {"pdf": "PDF", "docx": "Word document", "html": "web page", "md": "Markdown", "txt": "text"}


def describe(document: Document, text: str, questions: Sequence[str] = ()) -> Description:
    """A document's description, from its text alone. `questions`: those that it was found to answer."""
    return Description(
        document_id=document.id,
        kind=_KIND_WORDS.get(document.kind, document.kind.upper()),
        first_lines=_first_lines(text, document.title),
        key_terms=tuple(key_terms(text[:_LOOKED_AT])),
        questions=tuple(questions),
    )


def _first_lines(text: str, title: str) -> str:
    """The first sentences that are more than a heading, licences and the like left out; the first lines where there
    are none."""
    boilerplate = Boilerplate(text[:_OPENING])
    borders = [span for span in sentence_borders(text, 0, min(len(text), _OPENING)) if span[0] not in boilerplate]
    lines = [" ".join(text[start:stop].split()) for start, stop in borders]
    lines = [each for each in lines if each and each.casefold() != title.casefold()]
    prose = next((at for at, each in enumerate(lines) if _is_readable(each)), 0)
    opening = " ".join(lines[prose : prose + 4])
    if len(opening) <= _FIRST_LINES:
        return opening
    return opening[:_FIRST_LINES].rsplit(" ", 1)[0].rstrip(" ,;:") + "…"


def _is_readable(line: str) -> bool:
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
    boilerplate = Boilerplate(text)
    spoken_of = text.casefold()
    words = {word.rstrip("s") for term in terms for word in term.casefold().split()}
    best: dict[str, tuple[float, Candidate]] = {}
    for candidate in candidates(text, boilerplate.__contains__):
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
    write_durably(folder / FILE, memoryview(json.dumps({"format": FORMAT, **description.to_dict()}).encode()))


_SHORTEST, _LONGEST = 40, 320  # characters of a sentence
_MOST_SUBJECT_WORDS = 5
_MOST_QUESTION_WORDS = 14
_SUBJECT = r"(?P<subject>[\w\"“][\w’'/&\"”-]*(?: [\w&\"“(][\w’'/&.\"”)-]*){0,6}?)"
_DEFINED = re.compile(
    _SUBJECT + r" (?P<verb>is|are|refers? to|means|is defined as|are defined as|is known as|is called)"
    r" (?P<rest>(?:an?|the|any|one|our|when|how|what|actively|usually|commonly)? ?[a-z][^;:]{20,})"
)
_WHEN = re.compile(
    _SUBJECT + r" (?P<verb>was|were) (?P<rest>(?:\w+ly )?[a-z]+(?:ed|en|un|wn|ld|de|nt|lt|pt|ut|it|ought|aught)"
    r"(?: (?!in\b|on\b)[\w’'-]+){0,5}?) (?:in|on) (?:the (?:year|spring|summer|autumn|winter) (?:of )?)?"
    r"(?:[A-Z][a-z]+ (?:\d{1,2}, )?)?(?:1[5-9]|20)\d\d\b"
)
_PURPOSE = re.compile(
    _SUBJECT + r" (?P<verb>is|are|was|were) (?P<rest>used|designed|intended|required|needed) (?:to|for|as) \w.{12,}"
)
_DOES = re.compile(
    _SUBJECT + rf" (?P<verb>{'|'.join(sorted(map(re.escape, asked_verbs()), key=len, reverse=True))}) \w.{{15,}}"
)
_STANDS_FOR = re.compile(
    r"(?P<name>(?:[A-Z][\w-]+(?: (?:of|and|for|the|to|in))? ){1,6}[A-Z][\w-]+) \((?P<short>[A-Z][A-Za-z]{1,6}[A-Z])\)"
)
_AIM = re.compile(
    r"(?P<ask>The (?:(?:main|primary|overall|major|key|ultimate|central|chief) )?(?:goals?|aims?|purposes?|objectives?|"
    r"mission|role|function|task|advantages?|benefits?|limitations?|drawbacks?|challenges?|focus) of "
    r"(?P<subject>[\w’'-]+(?: [\w’'&-]+){0,5}?)) (?P<verb>is|are|was|were) \w.{20,}"
)
_RESPONSIBLE = re.compile(_SUBJECT + r" (?P<verb>is|are) (?P<rest>responsible) for \w.{12,}")
_HEADING = re.compile(r"(?:\d+(?:\.\d+)*\.? )?(?P<question>(?:What|How|Why|When|Where|Who|Which) [^?.!:]{8,80}\?)")
_NO_DEFINITION = ("same", "case", "result", "first", "most", "only", "best", "last", "main", "key", "number")
_ELSEWHERE = {"table", "figure", "section", "appendix", "above", "below"}
_BRACKETS = re.compile(r" \((?![A-Z][A-Za-z]{0,5}[A-Z]\))[^()]{0,160}\)")
_PLURAL = re.compile(r"(?:\w{3,}[^su]s|people|children|data|men|women|criteria)$", re.I)


@dataclass(frozen=True)
class Candidate:
    """A question, where the sentence that should answer it stands, and how good a question of its kind mostly is."""

    question: str
    subject: str
    start: int
    stop: int
    kind: str
    worth: float


def candidates(text: str, boilerplate: Callable[[int], bool]) -> Iterator[Candidate]:
    """All questions of a text, in its order. boilerplate: whether a character is in it."""
    for start, stop in sentence_borders(text):
        sentence = _without_brackets(" ".join(text[start:stop].split()))
        if boilerplate(start) or not _SHORTEST <= len(sentence) <= _LONGEST or not _is_prose(sentence):
            heading = _HEADING.fullmatch(sentence)
            if heading and not boilerplate(start) and not set(sentence.casefold().split()) & _ELSEWHERE:
                yield Candidate(heading["question"], heading["question"], start, stop, "heading", 0.9)
            continue
        for kind, worth, make in _KINDS:
            made = make(sentence)
            if made is not None and len(made[0].split()) <= _MOST_QUESTION_WORDS:
                yield Candidate(*made, start, stop, kind, worth)
                break


def _without_brackets(sentence: str) -> str:
    """Without brackets, unless they hold a short form: "(van Viegen et al., 2021)"."""
    for _ in range(2):  # brackets within brackets
        sentence = _BRACKETS.sub("", sentence)
    return sentence


def _is_prose(sentence: str) -> bool:
    """A whole sentence: capital, full stop, few digits and brackets, no cells of tables."""
    odd = sum(not (each.isalpha() or each in " ,.’'-“”\"()") for each in sentence)
    return (
        sentence[0].isupper()
        and sentence.endswith((".", ".”", ".)"))
        and odd <= 0.08 * len(sentence)
        and not re.search(r"\S: \S.*; |\.\.\.|\|", sentence)
    )


def _subject(found: re.Match[str]) -> str | None:
    """The subject as it stands in a question; None if it is unclear."""
    subject: str = found["subject"]
    words = subject.split()
    first = words[0].casefold()
    article = first in ("the", "a", "an")
    noun = words[1:] if article else words
    if not noun or len(noun) > _MOST_SUBJECT_WORDS or not _is_clear([word.casefold().strip('"“”()') for word in noun]):
        return None
    if any(mark in subject for mark in ",;:") or any(subject.count(a) != subject.count(b) for a, b in ("()", "“”")):
        return None
    if first == "the" and not any(word[0].isupper() for word in noun) and len(noun) < 2:
        return None  # "the system": which one is not said
    return " ".join((first, *_as_within(found.string, noun)) if article else _as_within(found.string, noun))


def _is_clear(noun: list[str]) -> bool:
    """Whether these words, lower case, mean something beside their sentence."""
    common, unclear = word_class("common"), word_class("unclear")
    if noun[0] in word_class("unclear_first") or any(word in unclear for word in noun):
        return False
    if noun[-1] in common or len(set(noun)) < len(noun) or all(len(word) < 3 or word in common for word in noun):
        return False
    return not any(word.endswith("ly") and len(word) > 4 for word in noun)


def _as_within(sentence: str, words: list[str]) -> list[str]:
    """Without the capital that begins the sentence, unless it is that of a name."""
    head = words[0]
    is_name = (
        not head[1:].islower()  # OSCAL, fMRI
        or (len(words) > 1 and words[1][0].isupper())
        or not sentence.startswith(head)
    )
    return words if is_name else [head[0].lower() + head[1:], *words[1:]]


Made = tuple[str, str] | None
"""A question and its subject."""


def _asking(pattern: re.Pattern[str], question: str) -> Callable[[str], Made]:
    """Makes `question` of a sentence with a clear subject."""

    def make(sentence: str) -> Made:
        found = pattern.match(sentence)
        subject = _subject(found) if found else None
        if found is None or subject is None:
            return None
        return question.format(verb=found["verb"], subject=subject, rest=found["rest"]), subject

    return make


def _what_is(sentence: str) -> Made:
    found = _DEFINED.match(sentence)
    subject = _subject(found) if found else None
    if found is None or subject is None or (subject.startswith("the ") and subject[4:].islower()):
        return None
    first, second = [*found["rest"].split(), ""][:2]
    if found["verb"] in ("is", "are") and first not in ("a", "an", "the", "any", "one"):
        return None
    if first == "the" and second.strip(",") in _NO_DEFINITION:
        return None
    plural = found["verb"].startswith("are") or found["verb"] == "refer to"
    return f"What {'are' if plural else 'is'} {subject}?", subject


def _what_aim(sentence: str) -> Made:
    found = _AIM.match(sentence)
    if found is None or found["subject"].split()[0].casefold() in word_class("unclear_first") - {"a", "an"}:
        return None
    if set(found["subject"].casefold().split()) & word_class("unclear"):
        return None
    return f"What {found['verb']} t{found['ask'][1:]}?", found["subject"]


def _what_does(sentence: str) -> Made:
    found = _DOES.match(sentence)
    subject = _subject(found) if found else None
    if found is None or subject is None:
        return None
    verb = asked_verbs()[found["verb"]]
    plural = found["verb"] == verb
    if plural != bool(_PLURAL.search(subject)):
        return None
    return f"What {'do' if plural else 'does'} {subject} {verb}?", subject


def _stands_for(sentence: str) -> Made:
    found = _STANDS_FOR.search(sentence)
    if found is None:
        return None
    initials = [word[0] for word in re.split(r"[ -]", found["name"]) if word[0].isupper()]
    letters = [each for each in found["short"] if each.isupper()]
    if initials[-len(letters) :] != letters or len(letters) < 3:
        return None
    return f"What does {found['short']} stand for?", found["short"]


_KINDS: tuple[tuple[str, float, Callable[[str], Made]], ...] = (
    ("what aim", 1.2, _what_aim),
    ("what responsible", 1.0, _asking(_RESPONSIBLE, "What {verb} {subject} {rest} for?")),
    ("when", 1.0, _asking(_WHEN, "When {verb} {subject} {rest}?")),
    ("what for", 1.0, _asking(_PURPOSE, "What {verb} {subject} {rest} for?")),
    ("what is", 1.0, _what_is),
    ("what does", 0.9, _what_does),
    ("stands for", 0.5, _stands_for),
)
