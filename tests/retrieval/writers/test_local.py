"""A checkpoint on this machine as a writer: passages are read once, kept, checked, and leave when there is no room."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from model.checkpoint import backbone_model, load
from model.checkpoint.load import load_chat_model
from retrieval.engine.workspace import WRITER_FOLDER, documents_folders
from retrieval.errors import InvalidRequest, WriterError
from retrieval.types.writer import WriterPassage, WriterRequest, WriterToken, Written
from retrieval.writers import local
from retrieval.writers.local import LoadedWriter, LocalWriter, loaded_writer
from retrieval.writers.opening import open_writer, writer_report
from retrieval.writers.prompt import passage_body
from storage.trash import size_of
from tests.tiny_model import tiny_chat_model

TEXTS = ("The key is under the mat.", "The mat lies in the hall of the old house.", "Nobody is at home before noon.")
PASSAGES = tuple(
    WriterPassage(number, f"document{number}", f"Note {number}", (number,), text)
    for number, text in enumerate(TEXTS, 1)
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    model = tiny_chat_model()
    model.backbone.generation_config.eos_token_id = [258, 259]
    model.backbone.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    return folder


def request(passages: tuple[WriterPassage, ...] = PASSAGES, max_tokens: int = 8) -> WriterRequest:
    return WriterRequest("Answer.", "Where is the key?", passages, max_tokens=max_tokens)


def written(
    writer: LocalWriter, asked: WriterRequest, *, stop_after: int | None = None
) -> tuple[list[WriterToken], Written]:
    tokens: list[WriterToken] = []
    steps = writer.write(asked, lambda: stop_after is not None and len(tokens) >= stop_after)
    while True:
        try:
            tokens.append(next(steps))
        except StopIteration as ended:
            return tokens, ended.value


def text_of(tokens: list[WriterToken]) -> str:
    return "".join(token.text for token in tokens)


def writer_at(checkpoint: Path, home: Path, repair: float | None = 0.2, **settings: int) -> LocalWriter:
    return LocalWriter(str(checkpoint), home=home, device="cpu", repair=repair, **settings)


def test_a_folder_opens_as_a_local_writer_without_being_loaded(tmp_path: Path) -> None:
    writer = open_writer("/nowhere/to/be/found", home=tmp_path)
    assert (writer.kind, writer.leaves_machine) == ("local", False)
    with pytest.raises(WriterError, match="no checkpoint at"):
        next(writer.write(request(), lambda: False))


def test_passages_are_read_once_and_the_second_answer_is_the_same(checkpoint: Path, tmp_path: Path) -> None:
    writer = writer_at(checkpoint, tmp_path)
    first, how = written(writer, request())
    assert (how.stored_share, how.repair, how.finish) == (0.0, 0.2, "length")
    again, how = written(writer, request())
    assert how.stored_share == 1.0
    assert [(one.text, one.logprob) for one in again] == [(one.text, one.logprob) for one in first]
    other, how = written(writer_at(checkpoint, tmp_path), request())  # as after a restart
    assert how.stored_share == 1.0
    assert text_of(other) == text_of(first)


def test_passages_are_kept_whatever_their_number_and_company(checkpoint: Path, tmp_path: Path) -> None:
    writer = writer_at(checkpoint, tmp_path)
    written(writer, request())
    first, _, third = PASSAGES
    renumbered = (WriterPassage(1, third.document_id, third.title, third.pages, third.text), first)
    _, how = written(writer, request((renumbered[0], WriterPassage(2, first.document_id, *_rest(first)))))
    assert how.stored_share == 1.0


def _rest(passage: WriterPassage) -> tuple[str, tuple[int, ...], str]:
    return passage.title, passage.pages, passage.text


def test_reading_again_stores_and_uses_nothing(checkpoint: Path, tmp_path: Path) -> None:
    tokens, how = written(writer_at(checkpoint, tmp_path, repair=1.0), request())
    assert how == Written("length", 0.0, 1.0)
    assert size_of(tmp_path / WRITER_FOLDER) == 0
    assert len(tokens) >= 8


def test_each_token_tells_the_attention_on_each_passage(checkpoint: Path, tmp_path: Path) -> None:
    tokens, _ = written(writer_at(checkpoint, tmp_path), request())
    shares = [token.passage_attention for token in tokens if token.logprob is not None]
    assert all(share is not None and len(share) == 3 for share in shares)
    assert all(0 < sum(share or ()) < 1 for share in shares)


def test_writing_ends_when_it_is_cancelled(checkpoint: Path, tmp_path: Path) -> None:
    tokens, how = written(writer_at(checkpoint, tmp_path), request(max_tokens=50), stop_after=3)
    assert how.finish == "cancelled"
    assert len([token for token in tokens if token.logprob is not None]) == 3


def test_passages_that_do_not_fit_are_refused_with_what_to_do(checkpoint: Path, tmp_path: Path) -> None:
    long = WriterPassage(1, "long", "Long", (), "word " * 1000)
    with pytest.raises(InvalidRequest, match="take fewer passages"):
        written(writer_at(checkpoint, tmp_path), request((long,)))


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), MemoryError()]
)
@pytest.mark.parametrize("where", ["load_chat_model", "loaded_writer", "read_question"])
def test_too_little_memory_says_what_to_do(
    where: str, error: Exception, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **settings: object) -> None:
        raise error

    monkeypatch.setattr(load if where == "load_chat_model" else local, where, full)
    with pytest.raises(WriterError, match="not enough memory.* free the GPU"):
        written(writer_at(checkpoint, tmp_path), request())


@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "foreign"])
def test_a_damaged_passage_is_read_again_and_the_answer_is_the_same(
    harm: str, checkpoint: Path, tmp_path: Path
) -> None:
    expected, _ = written(writer_at(checkpoint, tmp_path), request())
    paths = sorted(tmp_path.glob("writer/*/document2/*.kv"))
    (path,) = paths
    contents = bytearray(path.read_bytes())
    if harm == "flip":
        contents[len(contents) // 2] ^= 4
    elif harm == "cut":
        del contents[-100:]
    elif harm == "empty":
        contents.clear()
    else:
        contents = bytearray(next(tmp_path.glob("writer/*/document1/*.kv")).read_bytes())
    path.write_bytes(contents)
    tokens, how = written(writer_at(checkpoint, tmp_path), request())
    assert text_of(tokens) == text_of(expected)
    assert 0 < (how.stored_share or 0) < 1
    assert written(writer_at(checkpoint, tmp_path), request())[1].stored_share == 1.0


def test_the_segments_used_least_recently_leave_when_the_budget_is_full(checkpoint: Path, tmp_path: Path) -> None:
    written(writer_at(checkpoint, tmp_path), request())
    everything = size_of(tmp_path / WRITER_FOLDER)
    written(writer_at(checkpoint, tmp_path), request(PASSAGES[:1]))  # used last, though made first
    small = writer_at(checkpoint, tmp_path, memory_bytes=everything)
    new = WriterPassage(1, "new", "New", (), TEXTS[0] + " ")
    written(small, request((WriterPassage(1, "new", "New", (), "Something else that nobody asked for."), new)))
    assert size_of(tmp_path / WRITER_FOLDER) <= everything
    assert list(tmp_path.glob("writer/*/document1/*.kv"))
    assert not list(tmp_path.glob("writer/*/document2/*.kv"))


def test_without_a_budget_nothing_is_kept(checkpoint: Path, tmp_path: Path) -> None:
    writer = writer_at(checkpoint, tmp_path, memory_bytes=0)
    first, _ = written(writer, request())
    again, how = written(writer, request())
    assert (how.stored_share, size_of(tmp_path / WRITER_FOLDER)) == (0.0, 0)
    assert text_of(first) == text_of(again)


def test_passages_of_a_folder_that_is_gone_are_read_again(checkpoint: Path, tmp_path: Path) -> None:
    writer = writer_at(checkpoint, tmp_path)
    written(writer, request())
    (folder,) = documents_folders(tmp_path, "document2")
    shutil.rmtree(folder)
    assert {path.parent.name for path in tmp_path.glob("writer/*/*/*.kv")} == {"document1", "document3"}
    assert 0 < (written(writer, request())[1].stored_share or 0) < 1


def test_another_checkpoint_uses_none_of_it(checkpoint: Path, tmp_path: Path) -> None:
    written(writer_at(checkpoint, tmp_path), request())
    model = load_chat_model(checkpoint, device="cpu")
    with torch.no_grad():
        model.backbone.lm_head.weight[0, 0] += 1e-3
    other = loaded_writer(model, tmp_path)
    assert other.memory.load("document1", model.tokenize(passage_body(PASSAGES[0]))) is None
    assert other.memory.folder not in {path.parent.parent for path in tmp_path.glob("writer/*/*/*.kv")}


def test_weights_are_hashed_at_the_first_start_alone(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = writer_at(checkpoint, tmp_path).loaded().memory.fingerprint
    monkeypatch.delattr(backbone_model, "weights_digest")
    assert writer_at(checkpoint, tmp_path).loaded().memory.fingerprint == first


def test_prefetched_passages_are_stored_when_they_are_asked_for(checkpoint: Path, tmp_path: Path) -> None:
    writer = writer_at(checkpoint, tmp_path)
    assert writer.prefetch(PASSAGES) == 3
    assert writer.prefetch(PASSAGES) == 0
    assert written(writer, request())[1].stored_share == 1.0


def test_stop_tokens_are_those_of_the_checkpoint(checkpoint: Path) -> None:
    model = load_chat_model(checkpoint, device="cpu")
    assert model.stop_ids == {258, 259, model.tokenizer.eos_token_id}


@pytest.fixture(scope="module")
def loaded(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedWriter]:
    yield loaded_writer(load_chat_model(checkpoint, device="cpu"), tmp_path_factory.mktemp("home"))


def test_the_reuse_check_raises_the_share_until_answers_agree(
    loaded: LoadedWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_MOST_TOKENS", 2)
    monkeypatch.setattr(local, "SHARES", (0.0, 0.9))
    monkeypatch.setattr(local, "word_f1", lambda one, other: 0.9)  # a random network writes no words
    never = local.measure(loaded)
    assert never.repair == 1.0
    assert [level.repair for level in never.levels] == [0.0, 0.9]
    assert never.levels[0].kl > never.levels[1].kl
    assert never.reached == local.Level(1.0, 1.0, 0.0, never.right_again)
    assert never.right_again == 0.0, "a random network answers nothing"
    monkeypatch.setattr(local, "ENOUGH", 0.9)
    enough = local.measure(loaded)
    assert (enough.repair, enough.reached.f1) == (0.0, 0.9)


def test_what_the_reuse_check_found_is_kept(loaded: LoadedWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "measure", lambda _: local.ReuseCheck(0.2, (local.Level(0.2, 0.97, 0.01),)))
    assert local.reuse_check_of(loaded).repair == 0.2
    monkeypatch.setattr(local, "measure", lambda _: pytest.fail("measured twice"))
    assert local.reuse_check_of(loaded).reached == local.Level(0.2, 0.97, 0.01)


def test_what_was_found_before_right_answers_were_counted_is_still_read(tmp_path: Path, checkpoint: Path) -> None:
    loaded = loaded_writer(load_chat_model(checkpoint, device="cpu"), tmp_path)
    loaded.memory.folder.mkdir(parents=True, exist_ok=True)
    kept = '{"repair": 0.2, "levels": [{"repair": 0.2, "f1": 0.97, "kl": 0.01}]}'
    (loaded.memory.folder / local.REUSE_CHECK_FILE).write_text(kept)
    assert local.reuse_check_of(loaded) == local.ReuseCheck(0.2, (local.Level(0.2, 0.97, 0.01, None),), None)


def test_every_built_in_answer_stands_in_its_passages_and_is_known_when_it_is_given() -> None:
    for passages, questions in local.built_in():
        text = " ".join(text for _, text in passages)
        for question in questions:
            assert question.answered_by(text), question.text
            assert not question.answered_by("No answer was found in the documents.")
    assert local.BuiltInQuestion("How much?", ("15",)).answered_by("It is 15 euros.")
    assert not local.BuiltInQuestion("How much?", ("15",)).answered_by("It is 215 euros.")


def test_words_are_compared_without_case_and_marks() -> None:
    assert local.word_f1("The mat.", "the mat") == 1.0
    assert local.word_f1("under the mat", "the hall") == pytest.approx(0.4)
    assert local.word_f1("", "mat") == 0.0


def test_the_doctor_shows_the_agreement_and_says_when_passages_are_read_again(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writer_at(checkpoint, tmp_path, repair=None)
    monkeypatch.setattr(local, "measure", lambda _: local.ReuseCheck(0.2, (local.Level(0.2, 0.97, 0.01, 0.75),), 0.8))
    report, problems = writer_report(writer, tmp_path)
    assert (report["repair"], report["agreement_f1"], report["first_token_kl"], problems) == (0.2, 0.97, 0.01, [])
    assert (report["right"], report["right_again"]) == (0.75, 0.8)
    written(writer, request())
    assert writer_report(writer, tmp_path)[0]["stored_bytes"] > 0
    elsewhere = writer_at(checkpoint, tmp_path / "other", repair=None)
    monkeypatch.setattr(local, "measure", lambda _: local.ReuseCheck(1.0, (local.Level(0.5, 0.6, 0.9),)))
    report, problems = writer_report(elsewhere, tmp_path / "other")
    assert report["repair"] == 1.0
    assert "reads all passages again" in problems[0] and "0.60" in problems[0]
    _, problems = writer_report(LocalWriter("/nowhere", home=tmp_path), tmp_path)
    assert "no checkpoint at nowhere" in problems[0], "users see it too, and no path of the machine"
