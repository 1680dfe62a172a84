"""Are the answers right? Exact match and F1 by question source, quoted and free, from the gold passage alone and from
everything at once.

    python benchmarks/quality/answer_quality.py --data FOLDER [--questions 200] [--documents 0] [--free]
        [--untitled] [--out FILE.json]
    python benchmarks/quality/answer_quality.py --data FOLDER --passkey 4096:50,32768:50,131072:50

A real library holds all development documents in one collection and the passages of the drawn questions, a document
each, in another; files are named by their title, where they have one. Every question is asked twice: of the whole first
collection, and of its own passage alone. "sentence" is the quoted sentence, "short" the words in it that the reader
marks.
Scoring as in SQuAD: lower case, no punctuation, no articles; "holds": a gold answer stands in the sentence; "one of 4":
in it or in one of the three that are offered beside it. No answer is right where there is none.

`--passkey` LENGTH:TRIALS: a number hidden at a random place of so many tokens of held-out text. They are stored in
pieces, one of which is exchanged in every trial; right if the answer holds the number.
"""

import argparse
import json
import random
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import numpy as np
import subject

from model.checkpoint.landmark_model import LandmarkModel
from research.train.data.corpus import Question, QuestionSet, read_jsonl, read_questions
from research.train.evaluation.answer_scores import exact_and_f1, holds, words
from retrieval.library import Library
from retrieval.types.answers import Answer
from retrieval.types.records import Scope

PIECE_TOKENS = 2048
Scores = dict[str, dict[str, list[dict[str, float]]]]


def main() -> None:
    options = subject.options(__doc__)
    options.add_argument("--data", type=Path, required=True, help="folder with qa/ and text/")
    options.add_argument("--questions", type=int, default=200)
    options.add_argument("--documents", type=int, default=0, help="a random sample of so many (0: all)")
    options.add_argument("--free", action="store_true", help="also in the model's own words")
    options.add_argument("--untitled", action="store_true", help="documents have numbers instead of their titles")
    options.add_argument("--passkey", help="lengths in tokens with trials, separated by commas")
    options.add_argument("--out", type=Path)
    arguments = subject.parse(options)
    print(json.dumps(machine.described(arguments.threads)))
    with tempfile.TemporaryDirectory() as folder:
        library = Library.open(Path(folder) / "home", subject.load(arguments.model))
        figures = (
            passkey(library, Path(folder), arguments)
            if arguments.passkey
            else answers(library, Path(folder), arguments)
        )
        library.close()
    if arguments.out:
        arguments.out.write_text(json.dumps(figures, indent=1))


def answers(library: Library, folder: Path, arguments: argparse.Namespace) -> dict:
    sets = read_questions(arguments.data, "dev")
    if arguments.untitled:
        sets.titles = [""] * len(sets.titles)
    numbers = list(range(len(sets.texts)))
    if arguments.documents:
        numbers = sorted(random.Random(0).sample(numbers, arguments.documents))
    kept = set(numbers)
    drawn = [question for question in sets.questions if question.document in kept]
    drawn = random.Random(1).sample(drawn, min(arguments.questions, len(drawn)))
    everything = library.collections.create("everything").id
    for number in numbers:
        store(library, folder / "all" / str(number) / name_of(sets, number), sets.texts[number], "everything")
    print(f"{len(numbers)} documents, {len(drawn)} questions", flush=True)
    alone = {passage: one_passage(library, folder, sets, passage) for passage in {passage_of(q) for q in drawn}}
    scores: Scores = defaultdict(lambda: defaultdict(list))
    modes = ["quote", *(["free"] if arguments.free else [])]
    for question in drawn:
        scopes = {
            "gold passage": Scope(document_ids=(alone[passage_of(question)],)),
            "everything": Scope(collection_ids=(everything,)),
        }
        for name, scope in scopes.items():
            for mode in modes:
                record = judged(asked(library, question.text, scope, quote=mode != "free"), question)
                for group in ("all", *groups(question)):
                    scores[f"{name}, {mode}"][group].append(record)
    return show(scores)


def passage_of(question: Question) -> tuple[int, int, int]:
    return (question.document, *question.context)


def one_passage(library: Library, folder: Path, sets: QuestionSet, passage: tuple[int, int, int]) -> str:
    document, start, stop = passage
    file = folder / "passages" / f"{document}-{start}" / name_of(sets, document)
    return store(library, file, sets.texts[document][start:stop])


def name_of(sets: QuestionSet, document: int) -> str:
    """A file's name: the title, or the number of a document without one."""
    return f"{re.sub(r'[^ -~]|/', ' ', sets.titles[document] or '')[:100].strip() or document}.txt"


def groups(question: Question) -> tuple[str, ...]:
    return (question.source, "answerable") if question.answers else ("unanswerable",)


def store(library: Library, file: Path, text: str, collection: str | None = None) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    job = library.jobs.run(library.documents.submit(file, collection=collection).id)
    assert job.state == "done" and job.document_id is not None, job.error
    return job.document_id


def asked(library: Library, text: str, scope: Scope, *, quote: bool) -> Answer:
    *_, answer = library.ask(text, within=scope, quote=quote, max_tokens=128 if quote else 32)
    assert isinstance(answer, Answer)
    return answer


def judged(answer: Answer, question: Question) -> dict[str, float]:
    if not question.answers or not answer.found:
        right = float(not question.answers and not answer.found)
        return dict.fromkeys(("sentence exact", "sentence f1", "short exact", "short f1", "holds", "one of 4"), right)
    sentence, short = exact_and_f1(answer.text, question.answers), exact_and_f1(answer.short, question.answers)
    held = [
        holds(said, question.answers) for said in (answer.text, *(one.passage.text for one in answer.other_sentences))
    ]
    return {
        "sentence exact": sentence[0],
        "sentence f1": sentence[1],
        "short exact": short[0],
        "short f1": short[1],
        "holds": float(held[0]),
        "one of 4": float(any(held)),
    }


def show(scores: Scores) -> dict:
    figures: dict = {}
    for name, by_group in scores.items():
        print(f"{name}:")
        figures[name] = {}
        for group, records in sorted(by_group.items()):
            means = {key: round(float(np.mean([record[key] for record in records])), 4) for key in records[0]}
            figures[name][group] = means | {"questions": len(records)}
            print(
                f"  {group:20} " + "  ".join(f"{key} {value:.3f}" for key, value in means.items()), f"({len(records)})"
            )
    for key in ("sentence f1", "short f1"):
        ratio = figures["everything, quote"]["answerable"][key] / figures["gold passage, quote"]["answerable"][key]
        print(f"{key}, everything / gold passage: {ratio:.3f}")
    return figures


def passkey(library: Library, folder: Path, arguments: argparse.Namespace) -> dict:
    texts = [row["text"] for row in read_jsonl(arguments.data / "text" / "heldout.jsonl.xz")]
    model = library.view.workspace.loaded().model
    figures = {}
    for length, trials in (map(int, pair.split(":")) for pair in arguments.passkey.split(",")):
        draw = random.Random(length)
        draw.shuffle(texts)
        stored = pieces(model, texts, length)
        ids = [store(library, folder / f"{length}-{n}.txt", text) for n, text in enumerate(stored)]
        right = {"quote": 0, "short": 0, "free": 0}
        for trial in range(trials):
            (number,) = draw.choices(range(len(stored)), [len(text) for text in stored])
            text, value = stored[number], str(draw.randrange(10_000, 100_000))
            at = text.find(" ", draw.randrange(len(text) * 19 // 20))
            needle = f" The pass key is {value}. Remember it. {value} is the pass key."
            hidden = store(library, folder / str(trial) / f"{length}-{number}.txt", text[:at] + needle + text[at:])
            scope = Scope(document_ids=(*ids[:number], hidden, *ids[number + 1 :]))
            for mode in ("quote", "free"):
                answer = asked(library, "What is the pass key?", scope, quote=mode == "quote")
                right[mode] += value in answer.text.replace(" ", "")
                if mode == "quote":
                    right["short"] += words(answer.short) == [value]
            library.documents.delete([hidden])
        tokens = sum(document.tokens for document in library.documents.list() if document.id in set(ids))
        figures[str(length)] = {name: hits / trials for name, hits in right.items()} | {"trials": trials}
        print(length, figures[str(length)], f"{len(ids)} pieces of {tokens} tokens", flush=True)
        library.documents.delete(ids)
    return figures


def pieces(model: LandmarkModel, texts: Sequence[str], length: int) -> list[str]:
    """Texts of about `length` tokens together, none longer than `PIECE_TOKENS`."""
    found: list[str] = []
    left = length
    for text in texts:
        ends = model.token_text.ends(model.tokenize(text).ids)[:left]
        starts = [0, *ends[PIECE_TOKENS - 1 : -1 : PIECE_TOKENS]]
        found += [text[a:b] for a, b in zip(starts, [*starts[1:], ends[-1]], strict=True)]
        left -= len(ends)
        if left <= 0:
            return found
    raise ValueError(f"The held-out text has only {length - left} tokens, not {length}.")


if __name__ == "__main__":
    main()
