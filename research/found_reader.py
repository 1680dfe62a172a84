"""Teaches the reader by what search really finds for questions about documents.

    python -m research.found_reader find --documents FOLDER --home DIR --out FILE
        [--share 5] [--untaught] [--split train]
    python -m research.found_reader read --sets FOLDER --out FILE
    python -m research.found_reader train --found FILE --sets FILE --data FOLDER --reader FOLDER --out FOLDER
        [--most 500 --judged FILE]

`find` asks the questions of a split of a library (see `research.fit_ranker`; what a reader was judged by before may
teach the next) and writes, a line a question, the windows that the reader would be given, with the places of the
answer. Documents whose digest `--share` divides are left out: the ranker is fitted on them, and a reader can be judged
by them (`--untaught`). An answer counts where it stands in the
right document, in sentences that match the question nearly as well as the best one that holds it; windows that hold it
elsewhere neither answer nor oppose.

`read` writes questions about receipts, contracts, papers, tables and texts in Chinese, Japanese and Arabic (`SETS`,
`*.train.jsonl.xz`) in the same form, tables row by row as the product writes them.

`train` goes on from a reader, or begins with an encoder: a question with four windows, of which at most two answer and
the others are those that search liked best. Of ten batches, unless `--mix` says otherwise, six are of `--found`, two of
`--sets`, two of the joint recipe's questions. Weights are multiplied in bfloat16 and kept in float32. A run that was
stopped goes on from where it last saved. `--most` takes so many of the found questions, document by document; what
`--judged` holds is read at the end, before the weights are rounded: a learning curve.

Axes: Q questions, K rows (a question with one window each), T tokens of a row.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from torch import nn

from model.reading.network import JointReader
from model.reading.rows import RowTokens
from model.reading.span_reader import ReadPassage, SpanReader, _token_ranges, _windows, load_span_reader
from model.scoring.sentences import sentence_borders
from research.fit_ranker import ROOT, Shown, ask_all
from research.train.data.batches.joint_batches import JointBatch, JointBatchMaker, in_keywords, joint_batch, tokens_of
from research.train.data.corpus import read_jsonl
from research.train.engine.run_state import log_record
from research.train.recipes.joint_reader import JointRun, begin, open_tokenizer, teach, training_questions

NEARLY = 0.7
"""Of the late-interaction score of the best sentence that holds the answer."""
TELLING = 8
"""Characters of all answers from which another document that holds one is no wrong one."""
BATCH, ROWS = 6, 4
WITHHELD, KEYWORDS, UNTITLED = 0.08, 0.06, 0.1
LONGEST_PASSAGE = 200
"""Tokens."""
_BETWEEN_WORDS = r"[^\w$%€£#]+"
SETS = {
    "sroie_forms": 1500, "cuad": 1500, "qasper": 600, "hotpotqa": 500, "hybrid_tables": 1500, "wtq": 3000,
    "cmrc_zh": 1100, "drcd_zh": 700, "jaquad_ja": 1500, "arcd_ar": 700,
}  # fmt: skip
"""At most so many questions of each."""
MIX = "ffsfofffso"
"""Of which kind the batches are, in turn: found, sets, others."""
SOURCES = (
    "squad11:3000", "squad20:3000", "policyqa:1500", "qed_nq:1500", "quac:1000", "openstax_glossary:800",
    "medquad:400", "tables:1500",
)  # fmt: skip


@dataclass(frozen=True)
class Window:
    """What the reader reads at once. `spans`: characters that answer; `wrong`: whether it does not."""

    title: str
    text: str
    spans: tuple[tuple[int, int], ...]
    score: float
    wrong: bool


@dataclass(frozen=True)
class FoundQuestion:
    text: str
    windows: tuple[Window, ...]

    @property
    def teaches(self) -> bool:
        """Whether it is known where the answer stands, or that it stands nowhere."""
        return any(each.spans for each in self.windows) or all(each.wrong for each in self.windows)


def windows_of(shown: Shown, answers: Sequence[str], tokenizer: Tokenizer) -> tuple[Window, ...]:
    """The windows that were read for a question."""
    patterns = [pattern for answer in answers if (pattern := _pattern(answer)) is not None]
    items, matches_S = shown.sentences.items, shown.sentences.matches_S
    made: list[tuple[Window, bool, list[tuple[int, int, float]]]] = []
    for _, group in groupby(range(len(items)), key=lambda number: items[number].run):
        numbers = list(group)
        document, first = shown.sentences.documents[numbers[0]], items[numbers[0]].start
        text, title = shown.text_of[document][first : items[numbers[-1]].stop], shown.title_of.get(document, "")
        borders = [(items[number].start - first, items[number].stop - first) for number in numbers]
        for start, stop in _borders(ReadPassage(title, text, borders), tokenizer):
            inside = [
                (number, a - start, b - start)
                for number, (a, b) in zip(numbers, borders, strict=True)
                if start <= a < stop
            ]
            found = [match.span() for pattern in patterns for match in pattern.finditer(text[start:stop])]
            held = [
                (a, b, float(matches_S[number]))
                for a, b in found
                for number, begin, end in inside
                if begin <= a and b <= end
            ]
            score = max((float(matches_S[number]) for number, _, _ in inside), default=0.0)
            window = Window(title, text[start:stop], (), score, wrong=not held)
            made.append((window, document == shown.document, held))
    best = max((match for _, right, held in made if right for _, _, match in held), default=0.0)
    telling = sum(map(len, answers)) >= TELLING
    windows = []
    for window, right, held in made:
        spans = tuple((a, b) for a, b, match in held if right and match >= NEARLY * best)
        windows.append(Window(window.title, window.text, spans, window.score, not held or not (right or telling)))
    return tuple(windows)


def _pattern(answer: str) -> re.Pattern[str] | None:
    """The words of an answer, whatever stands between them."""
    words = [re.escape(word) for word in re.split(_BETWEEN_WORDS, answer) if word]
    return re.compile(rf"(?<!\w){_BETWEEN_WORDS.join(words)}(?!\w)", re.I) if words else None


def _borders(passage: ReadPassage, tokenizer: Tokenizer) -> Iterator[tuple[int, int]]:
    """Characters of each window of a passage."""
    encoded = tokenizer.encode(passage.text, add_special_tokens=False)
    for window in _windows(0, _token_ranges(passage, encoded)):
        yield encoded.offsets[window.first][0], encoded.offsets[window.stop - 1][1]


class FoundBatches:
    """make(i) -> JointBatch number i, a pure function of it."""

    def __init__(
        self, tokenizer: Tokenizer, questions: Sequence[FoundQuestion], seed: int = 0, *, batch: int = BATCH
    ) -> None:
        self._questions, self._batch = [each for each in questions if each.teaches], batch
        self._tokenizer, self._tokens, self._seed = tokenizer, RowTokens.of(tokenizer), seed

    def make(self, index: int) -> JointBatch:
        epoch, place = divmod(index, max(1, len(self._questions) // self._batch))
        order = list(range(len(self._questions)))
        random.Random(f"{self._seed}-{epoch}").shuffle(order)
        rng = random.Random(f"{self._seed}-{epoch}-{place}")
        rows, spans = [], []
        for number in order[place * self._batch : (place + 1) * self._batch]:
            asked, windows = self._show(self._questions[number], rng)
            ids = self._tokenizer.encode(asked, add_special_tokens=False).ids
            for window in windows:
                encoded = self._tokenizer.encode(window.text, add_special_tokens=False)
                title = "" if rng.random() < UNTITLED else window.title
                titled = self._tokenizer.encode(title, add_special_tokens=False).ids
                rows.append((ids, titled, encoded.ids[:LONGEST_PASSAGE]))
                spans.append([span for span in tokens_of(window.spans, encoded) if span[1] < LONGEST_PASSAGE])
        return joint_batch(rows, spans, ROWS, self._tokens)

    def _show(self, question: FoundQuestion, rng: random.Random) -> tuple[str, list[Window]]:
        right = [each for each in question.windows if each.spans]
        wrong = sorted((each for each in question.windows if each.wrong), key=lambda each: -each.score)
        shown = [] if rng.random() < WITHHELD else rng.sample(right, min(len(right), rng.choice((1, 1, 2))))
        while len(shown) < ROWS and wrong:
            shown.append(wrong.pop(min(len(wrong) - 1, int(rng.expovariate(1 / 3)))))
        shown += [Window("", "-", (), 0.0, wrong=True)] * (ROWS - len(shown))
        rng.shuffle(shown)
        return in_keywords(question.text, rng) if rng.random() < KEYWORDS else question.text, shown


def judge(reader: SpanReader, questions: Sequence[FoundQuestion]) -> dict[str, float]:
    """Of the questions whose answer stands in a window: the share for which the likeliest span of all windows meets it;
    of the others: the share for which "none" is likelier than not."""
    right, refused = [], []
    for each in questions:
        if not each.windows:
            continue
        reading = reader.read(
            each.text, [ReadPassage(one.title, one.text, [(0, len(one.text))]) for one in each.windows]
        )
        best = max((span.probability, number, span.start, span.stop) for number, (span,) in enumerate(reading.spans))
        if any(one.spans for one in each.windows):
            right.append(any(best[2] < stop and start < best[3] for start, stop in each.windows[best[1]].spans))
        else:
            refused.append(reading.p_none > 0.5)
    shares = {"right": sum(right) / max(1, len(right)), "refused": sum(refused) / max(1, len(refused))}
    return {"answerable": len(right), "others": len(refused), **shares}


def train(
    found: Path,
    sets: Path,
    data: Path,
    reader: Path,
    out: Path,
    *,
    steps: int,
    rate: float,
    most: int | None = None,
    frozen: int = 1,
    mix: str = MIX,
    layers: int | None = None,
    teacher: Path | None = None,
    batch: int = BATCH,
    workers: int = 0,
    minutes: float = math.inf,
    save_every: int = 100,
) -> SpanReader:
    """Writes OUT/reader and returns it, its weights not rounded; for `workers`, `minutes` and `save_every` see `teach`.
    `reader`: a folder of one, or of an encoder that becomes one. `frozen`: lowest layers that keep their weights.
    `layers`: see `shortened`. `teacher`: folder of a reader with the same vocabulary; half of the loss is then the
    distance to what it says."""
    run = JointRun(
        sources=SOURCES,
        batch=10 * batch // BATCH,
        dropout=0.0,
        frozen_layers=frozen,
        steps=steps,
        learning_rate=rate,
        warmup=60,
    )
    tokenizer, taught = open_tokenizer(reader), begin(reader, run)
    if layers is not None:
        taught = shortened(taught, layers)
    makers: dict[str, FoundBatches | JointBatchMaker] = {
        "f": FoundBatches(tokenizer, read_found(found)[:most], batch=batch),
        "s": FoundBatches(tokenizer, read_found(sets), batch=batch),
        "o": JointBatchMaker(tokenizer, training_questions(run, data), batch=run.batch, rows=run.rows, seed=7),
    }

    def make(step: int) -> JointBatch:
        rounds, place = divmod(step, len(mix))
        return makers[mix[place]].make(rounds * mix.count(mix[place]) + mix[:place].count(mix[place]))

    told = load_span_reader(teacher).network if teacher is not None else None
    return teach(
        taught, tokenizer, make, run, out, teacher=told, save_every=save_every, workers=workers, minutes=minutes
    )


def shortened(reader: JointReader, layers: int) -> JointReader:
    """The reader with so many of its layers, evenly chosen from the first to the last: where a smaller one begins that
    is taught by the whole one (arXiv 1910.01108). Raises ValueError for more layers than it has, or fewer than two."""
    has = reader.encoder.encoder.layer
    if not 2 <= layers <= len(has):
        raise ValueError(f"The reader has {len(has)} layers; keep 2 to {len(has)} of them, not {layers}.")
    reader.encoder.encoder.layer = nn.ModuleList(has[round(each)] for each in np.linspace(0, len(has) - 1, layers))
    reader.config.num_hidden_layers = layers
    return reader


def find(
    questions: Path,
    documents: Path,
    home: Path,
    share: int,
    tokenizer: Tokenizer,
    *,
    untaught: bool = False,
    split: str = "train",
) -> Iterator[FoundQuestion]:
    """`share` 0: about all documents."""

    def wanted(number: int) -> bool:
        return not share or (number % share == 0) == untaught

    for row, shown in ask_all(questions, documents, home, wanted, split):
        yield FoundQuestion(row["question"], windows_of(shown, row["answers"], tokenizer))


def read_found(file: Path) -> list[FoundQuestion]:
    made = []
    for row in read_jsonl(file):
        windows = (Window(**each | {"spans": tuple(map(tuple, each["spans"]))}) for each in row["windows"])
        made.append(FoundQuestion(row["text"], tuple(windows)))
    return made


def read_sets(folder: Path, tokenizer: Tokenizer) -> Iterator[FoundQuestion]:
    """Questions whose answer stands at a place that is told, or in one cell alone; and some without an answer."""
    for name, most in SETS.items():
        rows = read_jsonl(folder / f"{name}.train.jsonl.xz")
        placed = ((row, *_placed(row)) for row in rows)
        usable = ((row, text, spans) for row, text, spans in placed if text and (spans or not row["answers"]))
        for row, text, spans in islice(usable, most):
            yield FoundQuestion(row["question"], _cut(row, text, spans, tokenizer))


def _placed(row: dict[str, Any]) -> tuple[str, list[tuple[int, int]]]:
    """The text, and the places of the answer; none where they are not told."""
    table, answers, text = row.get("table"), row["answers"], row.get("context") or ""
    if table is None:
        starts = zip(row.get("answer_starts") or (), answers, strict=False)
        return text, [(start, start + len(answer)) for start, answer in starts if start >= 0]
    cells = [
        "; ".join(f"{name}: {cell}" for name, cell in zip(table["header"], each, strict=False) if name and cell)
        for each in table["rows"]
    ]
    whole = "\n".join(["\t".join(table["header"]), *cells, "", text]).rstrip()
    found = [match.span() for answer in answers if (one := _pattern(answer)) for match in one.finditer(whole)]
    return whole, found if len(found) == 1 else []


def _cut(row: dict[str, Any], text: str, spans: Sequence[tuple[int, int]], tokenizer: Tokenizer) -> tuple[Window, ...]:
    title = row["table"]["caption"] if row.get("table") else row["context_title"]
    asked, windows = set(row["question"].lower().split()), []
    for start, stop in _borders(ReadPassage(title, text, list(sentence_borders(text))), tokenizer):
        inside = tuple((a - start, b - start) for a, b in spans if start <= a and b <= stop)
        words = len(asked & set(text[start:stop].lower().split()))
        windows.append(Window(title, text[start:stop], inside, float(words), wrong=not inside))
    return tuple(windows)


def write_found(questions: Iterable[FoundQuestion], out: Path) -> None:
    with out.open("w", encoding="utf-8") as file:
        for each in questions:
            windows = [vars(window) for window in each.windows]
            file.write(json.dumps({"text": each.text, "windows": windows}, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one, two, three = (commands.add_parser(name) for name in ("find", "read", "train"))
    one.add_argument("--questions", type=Path, default=ROOT / "benchmarks" / "questions" / "held_out")
    one.add_argument("--documents", type=Path, required=True)
    one.add_argument("--home", type=Path, required=True)
    one.add_argument("--share", type=int, default=5, help="leave one document in so many out; 0: none")
    one.add_argument("--split", default="train")
    one.add_argument("--untaught", action="store_true", help="ask about the documents that are left out otherwise")
    two.add_argument("--sets", type=Path, required=True, help="folder of *.train.jsonl.xz")
    three.add_argument("--found", type=Path, required=True)
    three.add_argument("--sets", type=Path, required=True, help="what `read` wrote")
    three.add_argument("--data", type=Path, required=True, help="folder with qa/ (*.jsonl.xz)")
    three.add_argument("--steps", type=int, default=1300)
    three.add_argument("--rate", type=float, default=8e-5)
    three.add_argument("--frozen", type=int, default=1, help="lowest layers that keep their weights")
    three.add_argument("--mix", default=MIX, help="kinds of the batches in turn: f found, s sets, o others")
    three.add_argument("--layers", type=int, help="begin with so many of the reader's layers")
    three.add_argument("--teacher", type=Path, help="folder of a reader with the same vocabulary")
    three.add_argument("--batch", type=int, default=BATCH, help="questions of a batch; of the others in proportion")
    three.add_argument("--workers", type=int, default=0, help="processes that make batches, beside this one")
    three.add_argument("--minutes", type=float, default=math.inf, help="time after which the run ends, if sooner")
    three.add_argument("--save-every", type=int, default=100, help="steps between two states of the run")
    three.add_argument("--most", type=int, help="found questions")
    three.add_argument("--judged", type=Path, help="what `find --untaught` wrote")
    for each in (one, two, three):
        each.add_argument("--reader", type=Path, default=ROOT / "model" / "default" / "reader")
        each.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    if given.command == "train":
        paths = (given.found, given.sets, given.data, given.reader, given.out)
        named = ["steps", "rate", "most", "frozen", "mix", "layers", "teacher"]
        named += ["batch", "workers", "minutes", "save_every"]
        made = train(*paths, **{name: getattr(given, name) for name in named})
        if given.judged:
            log_record(given.out, {"questions": given.most, "judged": judge(made, read_found(given.judged))})
        return
    tokenizer = load_span_reader(given.reader).tokenizer
    if given.command == "find":
        sources = (given.questions, given.documents, given.home, given.share, tokenizer)
        write_found(find(*sources, untaught=given.untaught, split=given.split), given.out)
    else:
        write_found(read_sets(given.sets, tokenizer), given.out)


if __name__ == "__main__":
    main()
