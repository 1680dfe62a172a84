"""The span reader's recipe end to end, with an encoder that knows words and nothing else."""

import json
import lzma
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch

from model.scoring.span_reader import load_span_reader
from model.training.__main__ import main
from model.training.data.batches.reader_batches import Distractors, ReaderBatchMaker, shown
from model.training.data.span_questions import LONGEST_PIECE, cut, read_span_questions
from model.training.data.token_states import StateCache, TokenStates
from model.training.recipes import span_reader
from model.training.recipes.span_reader import Caches, ReaderRun, measure, passages_of, train

WIDTH = 16
RUN = ReaderRun(
    sources=("squad11", "squad20"), states=(0,), width=16, layers=1, batch=4, steps=6, warmup=2, crowded=0.5
)


class WordStates:
    """A random vector for each word, the same wherever it stands; two states of a token."""

    identity = "words"

    def encode(self, texts: Sequence[str], *, questions: bool) -> Iterator[TokenStates]:
        for text in texts:
            found = list(re.finditer(r"\w+", text))
            states = [
                torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(sum(map(ord, match[0]))))
                for match in found
            ]
            offsets = torch.tensor([match.span() for match in found], dtype=torch.int32)
            yield TokenStates(torch.stack(states).half(), offsets, torch.zeros(len(found), dtype=torch.int32))


def row(number: int, name: str, place: str, *, answerable: bool = True) -> dict[str, object]:
    context = f"Entry {number} of the list. {name} was born in {place} long ago."
    return {
        "id": f"q{number}-{answerable}",
        "context_title": "People",
        "context": context,
        "question": f"Where was {name} born?" if answerable else f"Whom did {name} marry?",
        "answers": [place] if answerable else [],
        "answer_starts": [context.index(place)] if answerable else [],
    }


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "qa").mkdir()
    names = [f"Name{chr(97 + number)}" for number in range(12)]
    for split, chosen in (("train", names[:8]), ("dev", names[8:])):
        rows = [row(number, name, f"Place{number}") for number, name in enumerate(chosen)]
        unanswerable = [row(number, name, f"Place{number}", answerable=False) for number, name in enumerate(chosen)]
        for source, content in (("squad11", rows), ("squad20", rows + unanswerable)):
            lines = "\n".join(json.dumps(each) for each in content)
            (tmp_path / "qa" / f"{source}.{split}.jsonl.xz").write_bytes(lzma.compress(lines.encode()))
    return tmp_path


@pytest.fixture
def caches(data: Path) -> Caches:
    made = Caches.of(data / "states")
    for split in ("train", "dev"):
        questions = read_span_questions(data, split, RUN.sources)  # type: ignore[arg-type]
        list(made.passages.add(WordStates(), passages_of(questions)))
        list(made.asked.add(WordStates(), [each.text for each in questions], questions=True))
    return made


def test_a_run_that_was_killed_ends_with_the_same_reader(
    data: Path, caches: Caches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(RUN, data, caches, tmp_path / "whole", save_every=3)
    made = span_reader._step
    calls = iter(range(100))

    def killed(*given: object) -> float:
        if next(calls) == 4:
            raise KeyboardInterrupt
        return made(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(span_reader, "_step", killed)
    with pytest.raises(KeyboardInterrupt):
        train(RUN, data, caches, tmp_path / "killed", save_every=3)
    monkeypatch.setattr(span_reader, "_step", made)
    train(RUN, data, caches, tmp_path / "killed", save_every=3)
    whole, resumed = load_span_reader(tmp_path / "whole"), load_span_reader(tmp_path / "killed")
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)
    figures = json.loads((tmp_path / "whole" / "figures.json").read_text())
    assert figures["gold"]["squad11"]["questions"] == 4
    assert figures["crowd"]["all"]["questions"] > 0
    assert set(figures["gold"]["squad20"]) == {"f1", "exact", "holds", "auc", "questions"}
    assert figures == measure(whole, RUN, data, caches, RUN.sources, span_reader.DEV_QUESTIONS)


def test_a_folder_keeps_its_settings(data: Path, caches: Caches, tmp_path: Path) -> None:
    train(RUN, data, caches, tmp_path / "run")
    with pytest.raises(ValueError, match="other settings"):
        train(RUN.changed(["steps=7"]), data, caches, tmp_path / "run")
    with pytest.raises(ValueError, match="no setting"):
        RUN.changed(["colour=1"])
    assert RUN.changed(["states=[1, 0]", "width=8"]).states == (1, 0)


def test_states_are_encoded_once_and_belong_to_one_encoder(tmp_path: Path) -> None:
    cache = StateCache(tmp_path)
    list(cache.add(WordStates(), ["one two three", "four"]))
    again = StateCache(tmp_path)
    assert "four" in again and "five" not in again
    first = next(WordStates().encode(["one two three"], questions=False))
    assert torch.equal(again.get("one two three").states_TSE, first.states_TSE)
    assert not list(again.add(WordStates(), ["four"]))
    other = WordStates()
    other.identity = "others"
    with pytest.raises(ValueError, match="'words', not of 'others'"):
        list(again.add(other, ["five"]))


def test_targets_stand_where_the_answer_stands(data: Path, caches: Caches) -> None:
    questions = read_span_questions(data, "train", ["squad20"])
    wrong = Distractors(caches.passages, caches.asked, passages_of(questions))
    maker = ReaderBatchMaker(caches.passages, caches.asked, questions, states=(1, 0), batch=2)
    answerable, unanswerable = questions[0], questions[-1]
    beside = wrong.of(answerable, most=3)
    assert answerable.pieces[0] not in beside and not any("Place0 " in piece for piece in beside)
    batch = maker.collate(
        [
            shown(answerable, [*beside, *answerable.pieces]),
            shown(answerable, beside),
            shown(unanswerable, unanswerable.pieces),
        ]
    )
    at = int(batch.start_QN1[0].argmax())
    piece, first, stop = batch.offsets[0][at]
    assert ([*beside, *answerable.pieces][piece])[first:stop] == "Place0"
    assert float(batch.start_QN1[0, at]) == 1 and int(batch.stretch_QN[0, at]) == 3
    assert batch.start_QN1[1:, -1].tolist() == batch.end_QN1[1:, -1].tolist() == [1, 1]
    states = caches.passages.get(answerable.pieces[0]).states_TSE
    begin = int((batch.stretch_QN[0] == 3).nonzero()[0])
    assert torch.equal(batch.states_QNE[0, begin, :WIDTH], states[0, 1].float())


def test_long_passages_are_cut_between_sentences() -> None:
    text = " ".join(f"This is sentence number {number} of a long text." for number in range(100))
    pieces = [text[start:stop] for start, stop in cut(text)]
    assert "".join(pieces) == text and max(map(len, pieces)) <= LONGEST_PIECE
    assert all(piece.rstrip().endswith(".") for piece in pieces)
    assert max(stop - start for start, stop in cut("x" * 3000)) <= LONGEST_PIECE
    assert cut("") == []


def test_the_commands_train_and_measure(
    data: Path, caches: Caches, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = ["--data", str(data), "--states", str(data / "states"), "--threads", "1", "--out", str(tmp_path / "run")]
    small = ['sources=["squad11"]', "states=[0]", "width=16", "layers=1", "batch=4", "steps=2"]
    assert main(["span-reader", "train", *shared, *(word for each in small for word in ("--set", each))]) == 0
    figures = json.loads((tmp_path / "run" / "figures.json").read_text())
    capsys.readouterr()
    assert main(["span-reader", "measure", *shared]) == 0
    assert json.loads(capsys.readouterr().out) == figures
    assert main(["span-reader", "states", *shared[:4]]) == 2
    assert "--encoder or --model" in capsys.readouterr().err
