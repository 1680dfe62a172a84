"""The joint reader's recipe end to end, with a tiny encoder."""

from __future__ import annotations

import json
import lzma
import re
from pathlib import Path

import pytest
import torch

from model.reading.span_reader import FOLDER, SpanReader, load_span_reader
from research.train.__main__ import main
from research.train.data.batches.joint_batches import JointBatchMaker
from research.train.data.questions.table_questions import make_table_questions
from research.train.recipes import joint_reader
from research.train.recipes.joint_reader import JointRun, training_questions
from research.train.recipes.rounding import save_reader
from tests.tiny_reader import save_encoder, word_tokenizer

RUN = JointRun(sources=("squad11", "tables:8"), batch=4, steps=6, warmup=2)
PLACES = ("Oslo", "Rome", "Cairo", "Lima", "Accra", "Quito")


def row(number: int) -> dict[str, object]:
    place = PLACES[number % len(PLACES)]
    context = f"Entry {number} of the list. Person {number} was born in {place} long ago."
    return {
        "id": f"q{number}",
        "context_title": "People",
        "context": context,
        "question": f"Where was person {number} born?",
        "answers": [place],
        "answer_starts": [context.index(place)],
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    (folder / "qa").mkdir()
    for name, split, numbers in (("squad11", "train", range(12)), ("squad11", "dev", range(20, 24))):
        with lzma.open(folder / "qa" / f"{name}.{split}.jsonl.xz", "wt") as file:
            file.writelines(json.dumps(row(number)) + "\n" for number in numbers)
    for name in joint_reader.DEV[1:-1]:
        with lzma.open(folder / "qa" / f"{name}.dev.jsonl.xz", "wt") as file:
            file.write(json.dumps(row(30)) + "\n")
    return folder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder") / "bert"
    texts = [str(row(number)["context"]) + str(row(number)["question"]) for number in range(40)]
    save_encoder(folder, texts)
    return folder


def batches(data: Path, **given: float) -> JointBatchMaker:
    questions = training_questions(RUN, data)
    texts = [text for each in questions for text in (each.text, each.title, *each.pieces)]
    return JointBatchMaker(word_tokenizer(texts), questions, batch=4, **given)


def test_fewer_questions_than_a_batch_are_one(data: Path) -> None:
    few = training_questions(RUN, data)[:3]
    texts = [text for each in few for text in (each.text, each.title, *each.pieces)]
    maker = JointBatchMaker(word_tokenizer(texts), few, batch=4)
    assert maker.batches_per_epoch == 1 and len(maker.make(1).start_QN1) == 3


def test_targets_are_the_first_and_last_token_of_an_answer(data: Path) -> None:
    maker = batches(data, withheld=0.0, keywords=0.0)
    answers = {answer.lower() for each in training_questions(RUN, data) for answer in each.answers}
    for number in range(maker.batches_per_epoch):
        batch = maker.make(number)
        for ids, start, end in zip(batch.rows.ids_QKT.flatten(1), batch.start_QN1, batch.end_QN1, strict=True):
            first, last = int(start.nonzero()), int(end.nonzero())
            said = maker.tokenizer.decode(ids[first : last + 1].tolist(), skip_special_tokens=False)
            assert said.replace(" ", "") in {answer.replace(" ", "") for answer in answers}


def test_where_the_gold_passage_is_withheld_not_here_is_right(data: Path) -> None:
    batch = batches(data, withheld=1.0).make(0)
    assert batch.start_QN1[:, -1].all()
    assert batch.start_QN1.sum() == len(batch.start_QN1)


def test_a_batch_is_a_function_of_its_number(data: Path) -> None:
    one, other = batches(data).make(3), batches(data).make(3)
    assert torch.equal(one.rows.ids_QKT, other.rows.ids_QKT)
    assert torch.equal(one.start_QN1, other.start_QN1)


def test_wrong_passages_hold_no_accepted_answer(data: Path) -> None:
    maker = batches(data, withheld=0.0, keywords=0.0)
    batch = maker.make(0)
    right_Q = batch.start_QN1[:, :-1].sum(-1)
    assert (right_Q == 1).all(), "one passage of each question holds the answer"


def test_sources_and_first_words_can_be_asked_twice_as_often(data: Path) -> None:
    once = training_questions(RUN, data)
    tables = [each for each in once if each.source == "tables"]
    assert training_questions(RUN.changed(['doubled=["tables"]']), data) == [*once, *tables]
    assert len(training_questions(RUN.changed(['doubled=["where"]']), data)) >= len(once) + 12


def test_no_passage_is_shown_twice_beside_a_question_while_others_are_left(data: Path) -> None:
    questions = training_questions(JointRun(sources=("squad11",)), data)
    texts = [text for each in questions for text in (each.text, each.title, *each.pieces)]
    maker = JointBatchMaker(word_tokenizer(texts), questions, batch=4, rows=4, withheld=0.0, keywords=0.0)
    for rows_KT in maker.make(0).rows.ids_QKT:
        assert len({tuple(row) for row in rows_KT.tolist()}) == 4


def test_a_stopped_run_ends_as_one_that_was_not_stopped(
    data: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    monkeypatch.setattr(joint_reader, "measure", lambda *given: {})  # six hundred made questions each time
    joint_reader.train(RUN, data, encoder, whole, save_every=2)
    real, calls = joint_reader._step, []

    def step_until_killed(*given):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(joint_reader, "_step", step_until_killed)
    with pytest.raises(KeyboardInterrupt):
        joint_reader.train(RUN, data, encoder, parts, save_every=2)
    monkeypatch.setattr(joint_reader, "_step", real)
    joint_reader.train(RUN, data, encoder, parts, save_every=2)
    one, other = (load_span_reader(each / FOLDER).network.state_dict() for each in (whole, parts))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_training_learns_and_leaves_what_is_frozen(data: Path, encoder: Path, tmp_path: Path) -> None:
    run = JointRun(sources=("squad11",), batch=4, steps=40, warmup=4, learning_rate=5e-3, frozen_layers=1)
    joint_reader.train(run, data, encoder, tmp_path, save_every=10)
    losses = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in losses if "loss" in line]
    assert losses[-1] < 0.9 * losses[0]
    begun = joint_reader.begin(encoder, run).state_dict()
    ended = load_span_reader(tmp_path / FOLDER).network.state_dict()
    changed = {name for name in begun if not torch.allclose(begun[name], ended[name], atol=2e-3)}
    assert any("layer.1." in name for name in changed)
    assert not any("layer.0." in name or "embeddings" in name for name in changed)


def test_the_command_line_trains_and_measures(
    data: Path, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = ["steps=2", "batch=2", 'sources=["squad11"]']
    given = [part for change in changes for part in ("--set", change)]
    command = ["joint-reader", "train", "--data", str(data), "--encoder", str(encoder), "--out", str(tmp_path), *given]
    assert main([*command, "--threads", "1"]) == 0
    capsys.readouterr()
    measured = ["joint-reader", "measure", "--data", str(data), "--model", str(tmp_path), "--most", "4"]
    assert main([*measured, "--threads", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["squad11"]["questions"] == 4


def test_an_encoder_of_another_kind_is_refused(data: Path, encoder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(encoder / "model.safetensors")
    weights.pop(next(name for name in weights if "layer.0" in name))
    other = tmp_path / "other"
    other.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (other / name).write_bytes((encoder / name).read_bytes())
    save_file(weights, other / "model.safetensors")
    with pytest.raises(ValueError, match="not a BERT-like encoder"):
        joint_reader.begin(other, RUN)


def test_made_tables_hold_their_answers() -> None:
    questions = make_table_questions(60)
    assert questions == make_table_questions(60)
    for question in questions:
        ((piece, start, stop),) = question.spans
        assert question.pieces[piece][start:stop] == question.answers[0]
    assert len({question.text for question in questions}) > 50


def test_in_some_made_tables_only_codes_tell_rows_and_columns_apart() -> None:
    codes = [set(re.findall(r"\bWP ?\d+\b", question.pieces[0])) for question in make_table_questions(200)]
    asked = [set(re.findall(r"\bWP ?\d+\b", question.text)) for question in make_table_questions(200)]
    told_apart = [len(held) for held, named in zip(codes, asked, strict=True) if named and named < held]
    assert len(told_apart) > 3 and max(told_apart) > 3


def test_training_goes_on_from_the_reader_of_another_run(
    data: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joint_reader, "measure", lambda *given: {})
    joint_reader.train(RUN, data, encoder, tmp_path / "first")
    first = load_span_reader(tmp_path / "first" / FOLDER).network.state_dict()
    again = joint_reader.begin(tmp_path / "first" / FOLDER, RUN).state_dict()
    assert all(torch.equal(again[name], weight) for name, weight in first.items())


def test_the_average_of_two_readers_lies_between_them(data: Path, encoder: Path, tmp_path: Path) -> None:
    readers = [SpanReader(joint_reader.begin(encoder, RUN), joint_reader.open_tokenizer(encoder)) for _ in range(2)]
    for number, reader in enumerate(readers):
        with torch.no_grad():
            reader.network.points.weight.fill_(number)
        save_reader(reader, tmp_path / str(number))
    folders = [str(tmp_path / name) for name in ("0", "1")]
    assert main(["joint-reader", "average", *folders, "--out", str(tmp_path / "mixed"), "--share", "0.25"]) == 0
    mixed = load_span_reader(tmp_path / "mixed" / FOLDER).network.state_dict()
    assert torch.allclose(mixed["points.weight"], torch.tensor(0.25), atol=2e-3)
    same = readers[0].network.state_dict()
    assert all(torch.allclose(mixed[name], same[name], atol=2e-2) for name in same if name != "points.weight")
    assert main(["joint-reader", "average", *folders, "--out", str(tmp_path / "mixed"), "--share", "1"]) == 2
