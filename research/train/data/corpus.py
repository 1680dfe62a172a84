"""Text and question sets from a data folder: `text/*.jsonl.xz` and `qa/*.jsonl.xz` (one JSON object a line).

- Splits are made by document before this module sees them; `overlap` checks that nothing of the development sets is in
  training.
- Question sets become *documents* (all contexts of one title, joined by blank lines) and questions with character spans
  in them.
"""

import json
import lzma
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

HELD_OUT = "heldout"
"""The file of `text/` that is never trained on."""
RARELY = {
    "books-extra-0": 0.0,
    "books-extra-1": 0.0,
    "books-0": 0.3,
    "books-1": 0.3,
    "win32": 0.2,
    "cppdocs": 0.25,
    "rustrfcs": 0.4,
    "dccode": 0.4,
    "dclaws": 0.4,
    "d365bc": 0.5,
    "medquad": 0.5,
    "factbook": 0.5,
}
"""Share of the documents that is used: less than all of sources that differ most from what people upload, or of which
there is much of one kind; 1 for all others."""
PARAGRAPH = "\n\n"


@dataclass(frozen=True)
class Question:
    """One question about one document. `spans`: where acceptable answers stand in the document's text (may be
    empty)."""

    id: str
    source: str
    text: str
    document: int
    context: tuple[int, int]
    """Character span of the passage that the question was asked about."""
    answers: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]


@dataclass
class QuestionSet:
    """Documents and the questions about them."""

    texts: list[str] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)


def read_jsonl(file: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file of JSON lines, compressed (`.xz`) or not."""
    with lzma.open(file, "rt", encoding="utf-8") if file.suffix == ".xz" else file.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def text_files(data: Path) -> list[Path]:
    """Files to train on, in a fixed order. Raises ValueError if the folder has none."""
    files = sorted(file for file in (data / "text").glob("*.jsonl.xz") if not file.name.startswith(HELD_OUT))
    if not files:
        raise ValueError(f"{data / 'text'} holds no *.jsonl.xz files; give the folder that contains text/ and qa/.")
    return files


@dataclass(frozen=True)
class Text:
    """A document to train on, or a stretch of it."""

    title: str
    text: str


def sample_texts(data: Path, *, characters: int, seed: int = 0, longest: int = 20_000) -> list[Text]:
    """About `characters` of documents from all sources, each cut to a random stretch of at most `longest`
    characters."""
    random_ = random.Random(seed)
    pools: list[list[Text]] = []
    for file in text_files(data):
        share = RARELY.get(file.name.removesuffix(".jsonl.xz"), 1.0)
        if share:
            pools.append(
                [
                    Text(row.get("title", ""), text)
                    for row in read_jsonl(file)
                    if random_.random() < share
                    for text in [_stretch(row["text"], longest, random_)]
                ]
            )
    total = sum(len(each.text) for pool in pools for each in pool)
    keep = min(1.0, characters / max(1, total))
    chosen = [each for pool in pools for each in pool if random_.random() < keep]
    random_.shuffle(chosen)
    return chosen


def _stretch(text: str, longest: int, random_: random.Random) -> str:
    if len(text) <= longest:
        return text
    start = random_.randrange(len(text) - longest)
    return text[text.find(" ", start) + 1 : start + longest]


def read_questions(data: Path, split: Literal["train", "dev"], *, sources: Iterable[str] | None = None) -> QuestionSet:
    """All question sets of a split as documents and questions.

    Contexts of one title become one document (untitled ones a document each); repeated contexts are kept once.
    """
    wanted = set(sources) if sources is not None else None
    result = QuestionSet()
    for file in sorted((data / "qa").glob(f"*.{split}.jsonl.xz")):
        name = file.name.split(".")[0]
        if wanted is None or name in wanted:
            _add_file(result, name, list(read_jsonl(file)))
    return result


def _add_file(result: QuestionSet, source: str, rows: Sequence[dict[str, Any]]) -> None:
    seen_contexts: dict[str, tuple[int, int]] = {}
    by_title: dict[str, int] = {}
    for row in rows:
        context = row["context"]
        if context not in seen_contexts:
            title = row["context_title"]
            if title and title in by_title and len(result.texts[by_title[title]]) < 60_000:
                document = by_title[title]
                start = len(result.texts[document]) + len(PARAGRAPH)
                result.texts[document] += PARAGRAPH + context
            else:
                document, start = len(result.texts), 0
                result.texts.append(context)
                result.titles.append(title)
                if title:
                    by_title[title] = document
            seen_contexts[context] = (document, start)
        document, start = seen_contexts[context]
        spans = tuple(
            (start + at, start + at + len(answer))
            for answer, at in zip(row["answers"], row["answer_starts"] or (), strict=False)
            if at >= 0
        )
        result.questions.append(
            Question(
                row["id"],
                source,
                row["question"],
                document,
                (start, start + len(context)),
                tuple(row["answers"]),
                spans,
            )
        )


def normalised(text: str) -> str:
    """Lower case, letters and digits only: what is compared when looking for overlap."""
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).strip()


def overlap(train: QuestionSet, dev: QuestionSet) -> dict[str, list[str]]:
    """What the development sets share with training: identical question-and-passage pairs, and passages met word for
    word.

    Returns ids of development questions by kind of overlap: "pair" and "passage".
    """
    passages = {normalised(train.texts[q.document][slice(*q.context)]) for q in train.questions}
    pairs = {
        (normalised(q.text), normalised(train.texts[q.document][slice(*q.context)])[:200]) for q in train.questions
    }
    found: dict[str, list[str]] = {"pair": [], "passage": []}
    for question in dev.questions:
        passage = normalised(dev.texts[question.document][slice(*question.context)])
        if passage in passages:
            found["passage"].append(question.id)
        if (normalised(question.text), passage[:200]) in pairs:
            found["pair"].append(question.id)
    return found
