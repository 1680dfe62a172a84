"""The reader is taught by the windows that search found: which of them answer, which oppose, and a run that goes on."""

from __future__ import annotations

import copy
import hashlib
import json
import lzma
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from app.settings import Settings
from model.reading.network import SpanLogits
from model.reading.span_reader import FOLDER, FoundSpan, load_span_reader
from research import fit_ranker, found_reader
from research.fit_ranker import Shown
from research.found_reader import (
    FoundBatches,
    FoundQuestion,
    Window,
    find,
    judge,
    read_found,
    read_sets,
    train,
    windows_of,
    write_found,
)
from research.train.recipes.joint_reader import JointRun, teacher_loss
from research.train.recipes.rounding import save_reader
from retrieval.query.features import QuestionTerms, Sentences
from retrieval.query.sentences import Sentence
from tests.tiny_reader import tiny_reader

RIGHT = "The road was closed in March. Nobody used the road in June."
OTHER = "Of another town: a road was closed in March. It rained."


def shown(document: str = "a") -> Shown:
    texts, items, documents = {"a": RIGHT, "b": OTHER}, [], []
    for run, (name, text) in enumerate(texts.items()):
        border = text.index(". ") + 1
        for start, stop in ((0, border), (border + 1, len(text))):
            items.append(Sentence([(run, start)], text[start:stop], run, start, stop, stop))
            documents.append(name)
    spans = [FoundSpan(0.1, 0, 1)] * 4
    sentences = Sentences(
        QuestionTerms("When was the road closed?"), items, documents, torch.tensor([0.9, 0.4, 0.8, 0.1]), spans
    )
    return Shown(document, sentences, {"a": "Roads"}, lambda _: 0.0, lambda _: "", True, texts)


def test_what_holds_the_answer_in_the_right_document_answers_and_elsewhere_neither() -> None:
    tokenizer = tiny_reader([RIGHT, OTHER]).tokenizer
    one, other = windows_of(shown(), ["March"], tokenizer)
    assert [one.text[slice(*span)] for span in one.spans] == ["March"] and one.title == "Roads" and not one.wrong
    assert other.spans == () and other.wrong, "a short answer stands in many documents by chance"
    one, other = windows_of(shown(), ["closed in March"], tokenizer)
    assert one.spans and not other.spans and not other.wrong, "what says the same elsewhere does not oppose"
    assert all(each.wrong for each in windows_of(shown(), [], tokenizer)), "nothing answers what has no answer"


@pytest.fixture
def questions() -> list[FoundQuestion]:
    at = RIGHT.index("March")
    right = Window("Roads", RIGHT, ((at, at + 5),), 0.9, wrong=False)
    wrong = [Window("Roads", f"Line {number} of the road.", (), 0.1 * number, wrong=True) for number in range(5)]
    return [FoundQuestion("When was the road closed?", (right, *wrong)) for _ in range(12)]


def test_batches_are_the_same_each_time_and_mark_the_answer(questions: list[FoundQuestion]) -> None:
    tokenizer = tiny_reader([RIGHT, "When was the road closed? Line of 0 1 2 3 4 - ."]).tokenizer
    batches = [FoundBatches(tokenizer, questions).make(3) for _ in range(2)]
    assert torch.equal(batches[0].rows.ids_QKT, batches[1].rows.ids_QKT)
    first, *_ = batches
    told = first.start_QN1[:, :-1].any(1)
    assert told.any() and torch.equal(told, ~first.start_QN1[:, -1]), "an answer, or that there is none"


def test_a_run_goes_on_and_ends_with_a_reader(
    tmp_path: Path, questions: list[FoundQuestion], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = tiny_reader([RIGHT, "When was the road closed? Line of 0 1 2 3 4 - ."])
    save_reader(reader, tmp_path)
    write_found(questions, tmp_path / "found.jsonl")
    assert read_found(tmp_path / "found.jsonl") == questions
    at = RIGHT.index("March")
    row = {
        "id": "1", "context_title": "Roads", "context": RIGHT, "question": "When was it closed?", "answers": ["March"],
        "answer_starts": [at],
    }  # fmt: skip
    for folder, name in (("qa", "squad11.train"), ("qa", "squad11.dev"), ("sets", "cuad.train")):
        (tmp_path / folder).mkdir(exist_ok=True)
        rows = [row | {"context": RIGHT + f" {name} {number}."} for number in range(12)]
        with lzma.open(tmp_path / folder / f"{name}.jsonl.xz", "wt") as file:
            file.writelines(json.dumps(each) + "\n" for each in rows)
    monkeypatch.setattr(found_reader, "SETS", {"cuad": 20})
    monkeypatch.setattr(found_reader, "SOURCES", ("squad11",))
    monkeypatch.setattr(found_reader, "JointRun", lambda **given: JointRun(**given | {"batch": 4}))
    write_found(read_sets(tmp_path / "sets", reader.tokenizer), tmp_path / "sets.jsonl")
    assert len(read_found(tmp_path / "sets.jsonl")) == 12
    paths = (tmp_path / "found.jsonl", tmp_path / "sets.jsonl", tmp_path, tmp_path / FOLDER, tmp_path / "run")
    for steps in (4, 10):
        taught = train(*paths, steps=steps, rate=1e-3, most=3)
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [each["step"] for each in log if "loss" in each] == [4, 10]
    judged = judge(taught, questions)
    assert judged["answerable"] == sum(any(one.spans for one in each.windows) for each in questions)
    assert 0 <= judged["right"] <= 1
    load_span_reader(tmp_path / "run" / FOLDER)
    given = {"rate": 1e-3, "layers": 2, "teacher": tmp_path / FOLDER, "frozen": 0, "workers": 1}
    train(*paths[:-1], tmp_path / "taught", steps=2, **given)
    (line,) = (tmp_path / "taught" / "log.jsonl").read_text().splitlines()
    assert json.loads(line)["loss"] > 0
    train(*paths[:-1], tmp_path / "timed", steps=500, rate=1e-3, minutes=1e-9, batch=3)
    (line,) = (tmp_path / "timed" / "log.jsonl").read_text().splitlines()
    assert json.loads(line)["step"] == 1


def test_a_shorter_reader_keeps_first_and_last_layers_and_agrees_most_with_a_teacher_that_says_the_same() -> None:
    whole = tiny_reader([RIGHT]).network
    layers = list(whole.encoder.encoder.layer)
    whole.encoder.encoder.layer.append(copy.deepcopy(layers[0]))
    layers = list(whole.encoder.encoder.layer)
    short = found_reader.shortened(whole, 2)
    assert list(short.encoder.encoder.layer) == [layers[0], layers[2]] and short.config.num_hidden_layers == 2
    with pytest.raises(ValueError, match="keep 2 to 2"):
        found_reader.shortened(short, 3)
    ours = SpanLogits(*(torch.randn(3, 9, requires_grad=True) for _ in range(2)))
    teacher_loss(ours, SpanLogits(*(each.detach() for each in ours))).backward()
    assert all(each.grad is not None and each.grad.abs().max() < 1e-6 for each in ours)
    other = SpanLogits(*(torch.randn(3, 9) for _ in range(2)))
    assert teacher_loss(other, ours) > teacher_loss(ours, ours)


def test_the_checkpoint_that_is_named_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not the shipped one, whose ranker the fit may start from."""
    (tmp_path / "files").mkdir()
    asked: list[str] = []

    def opened(settings: Settings) -> AbstractContextManager[None]:
        asked.append(settings.model)
        return nullcontext()

    monkeypatch.setattr(fit_ranker, "open_library", opened)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "held_out", SimpleNamespace(held_by=lambda row: None))
    sources = (tmp_path, tmp_path / "files", tmp_path / "home")
    assert list(fit_ranker.ask_all(*sources, lambda number: True, model=tmp_path)) == []
    assert asked == [str(tmp_path)]


@pytest.mark.parametrize(
    ("split", "share", "untaught", "asked"),
    [("train", 5, False, {"one"}), ("train", 5, True, {"five"}), ("test", 0, False, {"other"})],
)
def test_questions_of_a_split_are_asked_but_for_the_documents_that_are_left_out(
    split: str, share: int, untaught: bool, asked: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    of_share: dict[bool, str] = {}
    for number in range(40):  # until one digest is divided by five and one is not
        content = f"text {number}".encode()
        digest = hashlib.sha256(content).hexdigest()
        if of_share.setdefault(int(digest, 16) % 5 == 0, digest) == digest:
            (files / f"{number}.txt").write_bytes(content)
    rows = [("one", of_share[False], "train"), ("five", of_share[True], "train"), ("other", of_share[False], "test")]
    lines = [
        json.dumps({"question": name, "document": digest, "split": each, "answers": []}) for name, digest, each in rows
    ]
    (tmp_path / "questions.jsonl").write_text("\n".join(lines), encoding="utf-8")
    library = SimpleNamespace(
        documents=SimpleNamespace(submit=lambda file: SimpleNamespace(id=file.name)),
        jobs=SimpleNamespace(run=lambda job: SimpleNamespace(document_id=job)),
    )
    monkeypatch.setattr(fit_ranker, "open_library", lambda settings: nullcontext(library))
    monkeypatch.setattr(fit_ranker, "ask", lambda *given: shown())
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "held_out", SimpleNamespace(held_by=lambda row: None))
    tokenizer = tiny_reader([RIGHT, OTHER]).tokenizer
    found = find(tmp_path, files, tmp_path / "home", share, tokenizer, untaught=untaught, split=split)
    assert {each.text for each in found} == asked
