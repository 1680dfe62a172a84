"""Where rows come from: questions with answer spans, plain text, and made gaps, passkeys and copying.

Reads `*.jsonl.xz` or `*.jsonl`: question sets with `context`, `context_title`, `question`, `answers`, `answer_starts`
(rows without spans are left out), and plain text with `title` and `text`.
"""

import math
import random
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np

from model.checkpoint.landmark_model import LandmarkModel, TokenizedText
from research.landmark_lm.rows import Asked, RowText
from research.train.data.corpus import read_jsonl


@dataclass(frozen=True)
class Shape:
    """How large a row is."""

    passages: int = 8
    blocks: int = 8
    """Most blocks of a passage."""
    questions: int = 20
    each: int = 4
    """Most questions about one passage."""
    answer_tokens: int = 32
    question_tokens: int = 64
    title_tokens: int = 16
    asked_tokens: int = 64
    """Of a question in its template with its answer; longer ones are left out, since all of a row are as long as the
    longest."""


@dataclass(frozen=True)
class Mixture:
    """Shares of the kinds of rows, by how far training has come."""

    made_first: float = 0.6
    """Passkeys and copying at the beginning: they teach to read from memory at all."""
    made_last: float = 0.15
    """The same from half of the steps on."""
    text: float = 0.1
    gaps: float = 0.15

    def draw(self, done: float, rows: int, rng: random.Random) -> list[str]:
        """The kinds of the next rows, `done` (0 to 1) of the steps behind them. Passkeys stand in one of them at most:
        "the pass key" would not be one."""
        made = self.made_first + (self.made_last - self.made_first) * min(1.0, 2 * done)
        shares = {"passkeys": made / 2, "copying": made / 2, "text": self.text, "gaps": self.gaps}
        shares["questions"] = max(0.0, 1 - sum(shares.values()))
        if rows > 1:
            with_key = rng.random() < rows * shares.pop("passkeys")
            return ["passkeys"] * with_key + rng.choices([*shares], [*shares.values()], k=rows - with_key)
        return rng.choices([*shares], [*shares.values()])


class Source(Protocol):
    """Something that rows can be drawn from."""

    def draw(self, rng: random.Random) -> RowText:
        """A new row; one that asks nothing where what was drawn does not suffice."""


def draw_row(source: Source, rng: random.Random) -> RowText:
    """A row that asks something. Raises ValueError for a source that has none."""
    for _ in range(_MOST_DRAWN):
        if (row := source.draw(rng)).asked:
            return row
    raise ValueError(
        f"{type(source).__name__} has nothing to ask in {_MOST_DRAWN} rows: its questions have no answer span in their "
        "contexts, its texts are too short, or all is longer than a row allows. Give other files, or allow longer ones."
    )


@dataclass(frozen=True)
class Context:
    """A text with questions about it: (question, answer, character where the answer starts)."""

    number: int
    title: str
    text: str
    questions: tuple[tuple[str, str, int], ...]


QUESTIONS = (
    "qa/squad11", "qa/squad20", "qa/disflqa", "qa/qed_nq", "qa/nq_openbook", "qa/quac", "qa/policyqa",
    "qa/factbook_templated", "reading/hotpotqa", "reading/qasper", "reading/cuad",
    "reading/sroie_forms",
)  # fmt: skip
"""Sets of English questions with answer spans; their train files are read, where they are there."""
TEXTS = ("openstax", "wikifull", "books-0", "medquad", "dccode", "jose", "d365bc", "rustrfcs", "win32")
LONG_TEXT, TEXTS_EACH = 8_000, 60
_MOST_DRAWN = 200
"""Rows in a row that may ask nothing."""


def read_contexts(file: Path, first: int = 0) -> list[list[Context]]:
    """Contexts of a set with at least one span, numbered from `first` on and grouped by title (look-alikes of each
    other). Raises ValueError where there is none."""
    asked: dict[tuple[str, str], list[tuple[str, str, int]]] = defaultdict(list)
    for row in read_jsonl(file):
        starts, answers = row.get("answer_starts"), row.get("answers")
        if starts and answers and row.get("context") and starts[0] is not None and starts[0] >= 0:
            key = str(row.get("context_title") or ""), row["context"]
            asked[key].append((row["question"], answers[0], starts[0]))
    titles: dict[str, list[Context]] = defaultdict(list)
    for number, ((title, text), questions) in enumerate(asked.items(), first):
        titles[title or str(number)].append(Context(number, title, text, tuple(questions)))
    if not titles:
        raise ValueError(f"no question with an answer span in {file}; give another file.")
    return list(titles.values())


class Tokens:
    """What a row is made of, in the model's tokens."""

    def __init__(self, model: LandmarkModel, shape: Shape, room: int | None = None) -> None:
        """`room`: most tokens of a passage; None: as many as its blocks hold."""
        self.model, self.shape = model, shape
        self.end = int(model.tokenizer.eos_token_id)
        self.room = room or model.config.tokens_per_block * shape.blocks

    def prompt(self, question: str) -> list[int]:
        """The question in the model's template."""
        return self.model.prompt_of(self.model.tokenize(question.strip()).ids[: self.shape.question_tokens]).ids

    def answer(self, text: str) -> list[int]:
        """The answer and the end of it."""
        return [*self.model.tokenize(text.strip()).ids[: self.shape.answer_tokens], self.end]

    def head(self, title: str) -> list[int]:
        """A title as the line above its passage."""
        return [*self.model.tokenize(title).ids[: self.shape.title_tokens], *self.model.tokenize("\n").ids]

    def passage(
        self, context: Context, rng: random.Random, *, wanted: int
    ) -> tuple[list[int], list[tuple[str, str, int, int]]]:
        """Raw tokens of a window of a context, its title above it, and up to `wanted` of the questions that it answers,
        each with the raw tokens first..last-1 of the answer."""
        head = self.head(context.title) if context.title and rng.random() < 0.8 else []
        text = self.model.tokenize(context.text)
        room, at = self.room - len(head), rng.choice(context.questions)[2]
        token = next((i for i, end in enumerate(text.ends) if end > at), 0)
        start = token // room * room
        stop = min(start + room, len(text.ids))
        found: list[tuple[str, str, int, int]] = []
        for question, answer, begin in rng.sample(context.questions, len(context.questions)):
            if len(found) == wanted or begin < text.starts[start] or begin + len(answer) > text.ends[stop - 1]:
                continue
            inside = [i for i in range(start, stop) if text.ends[i] > begin and text.starts[i] < begin + len(answer)]
            if inside and len(inside) <= self.shape.answer_tokens:
                first, last = (i - start + len(head) for i in (inside[0], inside[-1] + 1))
                found.append((question, answer, first, last))
        return head + text.ids[start:stop], found


class Questions:
    """Questions over passages of one title and of anywhere. A set is drawn from as often as the root of the number of
    its questions says: large sets more often, small ones more often a question."""

    def __init__(self, tokens: Tokens, sets: Sequence[list[list[Context]]]) -> None:
        self.tokens = tokens
        self.groups = [group for groups in sets for group in groups]
        self.all = [context for group in self.groups for context in group]
        self.weights = list[float]()
        for groups in sets:
            within = [min(len(group), 20) for group in groups]
            whole = math.sqrt(sum(len(context.questions) for group in groups for context in group))
            self.weights += [whole * weight / sum(within) for weight in within]

    def draw(self, rng: random.Random) -> RowText:
        shape = self.tokens.shape
        (group,) = rng.choices(self.groups, self.weights)
        picked = rng.sample(group, min(shape.passages // 2, len(group)))
        picked += rng.sample(self.all, min(shape.passages - len(picked), len(self.all)))
        picked = list({context.number: context for context in picked}.values())
        rng.shuffle(picked)
        passages, asked = [], []
        for number, context in enumerate(picked):
            ids, found = self.tokens.passage(context, rng, wanted=shape.each)
            passages.append(ids)
            for question, answer, first, last in found:
                prompt, words = self.tokens.prompt(question), self.tokens.answer(answer)
                if len(prompt) + len(words) <= shape.asked_tokens:
                    asked.append(Asked(prompt, words, ((number, first, last),)))
        rng.shuffle(asked)
        return RowText(passages, asked[: shape.questions], [context.number for context in picked])


def _tokens_of(match: re.Match[str], text: TokenizedText) -> tuple[int, int]:
    """first..last-1: the tokens in which a match stands."""
    first = int(np.searchsorted(text.ends, match.start(), side="right"))
    return first, int(np.searchsorted(text.starts, match.end()))


def new_number(rng: random.Random) -> int:
    """Of a document that is made; no context has one as high."""
    return rng.randrange(1 << 32, 1 << 62)


class PlainText:
    """Long texts, from which continuations, copying and the filler of passkeys are drawn."""

    def __init__(self, tokens: Tokens, texts: list[str]) -> None:
        if not texts:
            raise ValueError("there is no plain text long enough; give other files.")
        self.tokens, self.texts = tokens, texts

    def windows(self, rng: random.Random, count: int, extra: int = 0) -> tuple[list[list[int]], list[int]]:
        """`count` windows of one text that follow each other, and `extra` tokens behind them."""
        needed = self.tokens.room * count + extra
        text = rng.choice(self.texts)
        start = rng.randrange(max(1, len(text) - 5 * needed))
        ids = self.tokens.model.tokenize(text[start : start + 7 * needed]).ids[:needed]
        room = self.tokens.room
        windows = [ids[at : at + room] for at in range(0, min(len(ids) - extra, room * count), room)]
        return ([window for window in windows if len(window) > 8], ids[len(ids) - extra :] if extra else [])

    def draw(self, rng: random.Random) -> RowText:
        """Continuations of one text whose earlier windows are stored; all of these are right to read."""
        shape, count = self.tokens.shape, 4
        length = min(self.tokens.model.config.block_size, shape.asked_tokens) - 1
        windows, rest = self.windows(rng, shape.passages // 2, length * count)
        if len(windows) < 2 or len(rest) < length * count:
            return RowText([], [])
        places = tuple((number, 0, len(window)) for number, window in enumerate(windows))
        asked = [Asked([], rest[at : at + length], places, "text") for at in range(0, length * count, length)]
        return RowText(windows, asked, [new_number(rng)] * len(windows))


@dataclass
class Gaps:
    """A sentence is taken out of a text, and a name or number of it that stands in the rest as well is asked for
    (recurring spans, arXiv 2101.00438): questions without end about any text."""

    text: PlainText
    around: int = 45
    """Characters shown on each side of the gap, at most."""
    sentence: re.Pattern[str] = re.compile(r"(?<=[.!?])\s+")
    span: re.Pattern[str] = re.compile(r"(?<=[a-z,;] )[A-Z][\w'-]+(?: [A-Z][\w'-]+)*|\b\d[\d,.]*\d\b")

    def draw(self, rng: random.Random) -> RowText:
        tokens = self.text.tokens
        passages, asked = list[list[int]](), list[Asked]()
        for _ in range(tokens.shape.passages):
            text = rng.choice(self.text.texts)
            start = rng.randrange(max(1, len(text) - 5 * tokens.room))
            sentences = self.sentence.split(text[start : start + 5 * tokens.room])[1:-1]
            kept, gaps = self._take_out(sentences, rng, tokens.shape.each)
            held = tokens.model.tokenize(" ".join(kept))
            number, ids = len(passages), held.ids[: tokens.room]
            for shown, name in gaps:
                found = [_tokens_of(match, held) for match in re.finditer(rf"\b{re.escape(name)}\b", " ".join(kept))]
                places = tuple((number, first, last) for first, last in found if last <= len(ids))
                prompt, answer = tokens.prompt(f"Fill the gap: {shown}"), tokens.answer(name)
                if places and len(prompt) + len(answer) <= tokens.shape.asked_tokens:
                    asked.append(Asked(prompt, answer, places, "gaps"))
            if ids:
                passages.append(ids)
        rng.shuffle(asked)
        return RowText(passages, asked[: tokens.shape.questions], [new_number(rng) for _ in passages])

    def _take_out(self, sentences: list[str], rng: random.Random, most: int) -> tuple[list[str], list[tuple[str, str]]]:
        """The sentences that stay, and what is shown of each other one with the name that is missing in it."""
        kept, gaps = list(sentences), list[tuple[str, str]]()
        names = [(sentence, found) for sentence in sentences for found in self.span.finditer(sentence)]
        for sentence, found in rng.sample(names, len(names)):
            rest = [each for each in kept if each is not sentence]
            again = any(re.search(rf"\b{re.escape(found[0])}\b", each) for each in rest)
            if len(gaps) < most and again and len(rest) < len(kept) and all(name != found[0] for _, name in gaps):
                before = sentence[max(0, found.start() - self.around) : found.start()]
                behind = sentence[found.end() : found.end() + self.around]
                if not re.search(rf"\b{re.escape(found[0])}\b", before + " " + behind):
                    kept = rest
                    gaps.append((f"{before}____{behind}", found[0]))
        return kept, [(shown, name) for shown, name in gaps if any(name in each for each in kept)]


@dataclass
class Copying:
    """Some words of a stored passage are given; what follows them is the answer."""

    text: PlainText
    given: int = 10
    copied: int = 16

    def draw(self, rng: random.Random) -> RowText:
        tokens = self.text.tokens
        passages, asked = [], []
        for number in range(tokens.shape.passages // 2):
            (window, *_), _ = self.text.windows(rng, 1)
            passages.append(window)
            for _ in range(tokens.shape.each if len(window) > self.given + self.copied else 0):
                start = rng.randrange(len(window) - self.given - self.copied)
                middle, last = start + self.given, start + self.given + rng.randint(2, self.copied)
                words = tokens.model.decode(window[start:middle])
                answer = [*window[middle:last], tokens.end]
                prompt = tokens.prompt(f"Continue: {words}")
                if len(prompt) + len(answer) <= tokens.shape.asked_tokens:
                    asked.append(Asked(prompt, answer, ((number, middle, last),), "copying"))
        return RowText(passages, asked, [new_number(rng) for _ in passages])


@dataclass
class Passkeys:
    """Numbers hidden in text, some of them under names."""

    text: PlainText
    names: tuple[str, ...] = (
        "Anna", "Berlin", "door", "garden", "Oslo", "engine", "river", "Peter", "library", "Mars", "bridge", "Tokyo",
        "server", "piano", "harbour", "Maria", "castle", "Nile", "window", "falcon", "desert", "Lima", "rocket",
    )  # fmt: skip

    def draw(self, rng: random.Random) -> RowText:
        tokens, count = self.text.tokens, self.text.tokens.shape.passages // 2
        if rng.random() < 0.5:
            named: list[list[str]] = [[] for _ in range(count)]
            rng.choice(named).append("")
        else:
            names = rng.sample(self.names, min(2 * count, len(self.names)))
            named = [names[2 * number : 2 * number + 2] for number in range(count)]
        passages, asked = [], []
        for number, some in enumerate(named):
            (filler, *_), _ = self.text.windows(rng, 1)
            statements: dict[tuple[str, int], list[int]] = {}
            for name in some:
                of, key = f" of the {name}" if name else "", rng.randint(1, 50_000)
                ids = tokens.model.tokenize(f" The pass key{of} is {key}. Remember it. {key} is the pass key{of}.").ids
                if sum(len(said) for said in statements.values()) + len(ids) <= tokens.room:
                    statements[of, key] = ids
            passage, places = _hidden(filler, list(statements.values()), tokens.room, rng)
            passages.append(passage)
            for (of, key), place in zip(statements, places, strict=True):
                prompt, answer = tokens.prompt(f"What is the pass key{of}?"), tokens.answer(f"The pass key is {key}.")
                asked.append(Asked(prompt, answer, ((number, *place),), "passkeys"))
        return RowText(passages, asked, [new_number(rng) for _ in passages])


def _hidden(
    filler: list[int], statements: list[list[int]], room: int, rng: random.Random
) -> tuple[list[int], list[tuple[int, int]]]:
    """Statements at random places of filler, within `room` tokens; and where each stands."""
    most = room - sum(map(len, statements))
    filler = filler[: rng.randint(min(most, room // 3), most)]
    cuts = sorted(rng.randint(0, len(filler)) for _ in statements)
    ids, places, done = [], [], 0
    for cut, statement in zip(cuts, statements, strict=True):
        ids += filler[done:cut]
        places.append((len(ids), len(ids) + len(statement)))
        ids += statement
        done = cut
    return ids + filler[done:], places


def open_sources(data: Path, tokens: Tokens) -> dict[str, Source]:
    """The kinds of rows from a folder with `qa`, `reading` and `text`. Raises ValueError for none."""
    texts, sets = [], list[list[list[Context]]]()
    for name in TEXTS:
        if (file := data / "text" / f"{name}.jsonl.xz").is_file():
            long = (line["text"] for line in read_jsonl(file) if len(line["text"]) > LONG_TEXT)
            texts += [text[: 25 * LONG_TEXT] for text in islice(long, TEXTS_EACH)]
    text = PlainText(tokens, texts)
    for name in QUESTIONS:
        if (file := data / f"{name}.train.jsonl.xz").is_file():
            sets.append(read_contexts(file, first=1 + sum(len(group) for groups in sets for group in groups)))
    if not sets:
        raise ValueError(f"there is no set of questions in {data}; it holds qa/ or reading/ with *.train.jsonl.xz.")
    return {
        "questions": Questions(tokens, sets),
        "gaps": Gaps(text),
        "text": text,
        "passkeys": Passkeys(text),
        "copying": Copying(text),
    }
