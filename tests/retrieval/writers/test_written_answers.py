"""Answers that a writer words: their citations, what happens when it fails, follow-ups, whole documents."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from model.checkpoint.landmark_model import LandmarkModel
from retrieval.errors import InvalidRequest, NotFound, PermissionDenied
from retrieval.library import Library
from retrieval.types.answers import NOTHING_FOUND, Answer, AnswerToken, Progress
from retrieval.types.records import Scope
from retrieval.types.writer import WriterRequest, Written
from retrieval.writers import passages, prompt
from storage.records import Principal
from tests.retrieval.conftest import SHARD_BYTES, TEXTS, add
from tests.scripted_writer import ScriptedWriter


@pytest.fixture
def writer(library: Library, three: dict[str, str]) -> ScriptedWriter:
    """The writer of a library of three documents."""
    writer = ScriptedWriter(lambda _request: "Whales sing [1]. The fox jumps [2][3].")
    library.use_writer(lambda: writer)
    return writer


def ask(library: Library, question: str = "What do whales do?", **settings: object) -> Answer:
    """The finished answer."""
    *others, answer = library.ask(question, **settings)  # type: ignore[arg-type]
    assert isinstance(answer, Answer)
    assert all(isinstance(other, AnswerToken | Progress) for other in others)
    return answer


def test_a_written_answer_cites_the_passages_that_it_was_given(library: Library, writer: ScriptedWriter) -> None:
    answer = ask(library, k=3)
    assert answer.text == "Whales sing [1]. The fox jumps [2][3]." and answer.found and not answer.problem
    (request,) = writer.requests
    assert [passage.number for passage in request.passages] == [1, 2, 3]
    for given, passage in zip(request.passages, answer.passages, strict=False):
        assert (given.text, given.document_id, given.pages) == (passage.text, passage.document_id, passage.pages)
        assert TEXTS[given.title][passage.start_index : passage.end_index] == given.text
        assert passage.blocks and passage.block_ids
    assert [(one.number, one.passage) for one in answer.citations] == [(1, 0), (2, 1), (3, 2)]
    assert [answer.text[one.start : one.end] for one in answer.citations] == ["[1]", "[2]", "[3]"]
    assert answer.writer is not None and (answer.writer.name, answer.writer.kind) == ("scripted", "server")
    assert (answer.layers, answer.heads, dict(answer.heat)) == ((), 0, {})


def test_a_written_answer_reopens_as_it_was_given(library: Library, writer: ScriptedWriter) -> None:
    given = ask(library)
    assert library.answers.get(given.id) == given
    with pytest.raises(InvalidRequest, match="Attention did not choose this answer"):
        library.answers.effect_of_block(given.id, given.passages[0].block_ids[0])


def test_the_same_document_gives_the_same_segments_for_every_question(library: Library, writer: ScriptedWriter) -> None:
    seen: dict[tuple[str, int], set[str]] = {}
    for question in ("What do whales do?", "Where does rain fall?", "Who guards the mill?"):
        for passage in ask(library, question, k=8).passages[:8]:
            seen.setdefault((passage.document_id, passage.start_index), set()).add(passage.text)
    assert seen and all(len(texts) == 1 for texts in seen.values())


def test_without_a_writer_or_when_a_quotation_is_wanted_the_library_answers_as_before(
    library: Library, writer: ScriptedWriter
) -> None:
    assert ask(library, quote=True).writer is None and not writer.requests
    with pytest.raises(InvalidRequest, match="not from whole documents"):
        ask(library, "Summarise.", quote=True, whole=True)
    library.use_writer(None)
    assert ask(library).writer is None
    with pytest.raises(InvalidRequest, match="needs a writer"):
        ask(library, "Summarise.", whole=True)


def test_numbers_that_no_passage_has_are_not_citations(library: Library, writer: ScriptedWriter) -> None:
    writer.reply = lambda _request: "Whales sing [1, 99]. See [42] and [0]."
    answer = ask(library, k=2)
    assert [(one.number, answer.text[one.start : one.end]) for one in answer.citations] == [(1, "1")]


def test_an_answer_that_is_not_in_the_documents_is_said_as_such(library: Library, writer: ScriptedWriter) -> None:
    writer.reply = lambda _request: NOTHING_FOUND
    answer = ask(library)
    assert not answer.found and answer.text == NOTHING_FOUND and not answer.claims and answer.passages


def test_a_writer_may_say_in_its_own_words_that_it_is_not_in_the_documents(
    library: Library, writer: ScriptedWriter
) -> None:
    text = "The passages do not mention the capital of Mongolia [1]."
    writer.reply = lambda _request: text
    answer = ask(library)
    assert (answer.found, answer.outcome, answer.text, answer.claims, answer.set_aside) == (
        False,
        "not_found",
        text,
        (),
        "",
    )


def test_a_library_without_documents_asks_no_writer(open_library) -> None:
    library, writer = open_library(), ScriptedWriter()
    library.use_writer(lambda: writer)
    assert not ask(library).found and not writer.requests


@pytest.mark.parametrize(("after", "text"), [(0, ""), (2, "Whales sing")])
def test_a_writer_that_fails_leaves_the_passages_and_says_what_happened(
    library: Library, writer: ScriptedWriter, after: int, text: str
) -> None:
    writer.fails_after = after
    answer = ask(library, k=3)
    assert answer.text == text and len(answer.passages) >= 3 and answer.found
    assert answer.problem == "The writer scripted cannot be used: it broke off in the middle. Ask again."
    assert library.answers.get(answer.id) == answer


def test_an_answer_that_was_cut_off_says_so(library: Library, writer: ScriptedWriter) -> None:
    writer.written = Written("length")
    assert "cut off" in ask(library).problem


def test_a_stopped_answer_is_kept_as_far_as_it_got(library: Library, writer: ScriptedWriter) -> None:
    stopped = False
    *tokens, answer = (
        item for item in library.ask("What do whales do?", cancelled=lambda: stopped) if not (stopped := True) or item
    )
    assert isinstance(answer, Answer) and len(tokens) == 1 and answer.text == "Whales"
    assert answer.passages and not answer.claims


def test_the_writers_attention_is_the_evidence_where_it_tells(library: Library, writer: ScriptedWriter) -> None:
    writer.attention, writer.written = 0.5, Written("stop", 0.75, 0.2)
    answer = ask(library, k=2)
    assert answer.memory_share == pytest.approx(0.5)
    assert [passage.score for passage in answer.passages[:2]] == pytest.approx([0.25, 0.25])
    for token in answer.tokens:
        assert sum(share for _, share in token.blocks) == pytest.approx(0.5)
    assert answer.writer is not None and (answer.writer.stored_share, answer.writer.repair) == (0.75, 0.2)


def test_a_follow_up_is_rewritten_by_the_writer_and_searched_as_such(library: Library, writer: ScriptedWriter) -> None:
    def reply(request: WriterRequest) -> str:
        return '"What does the fox do?"' if request.instruction == prompt.REWRITE else "It jumps [1]."

    writer.reply = reply
    ask(library, "Tell me of the fox.", conversation_id="c")
    answer = ask(library, "And what does it do?", conversation_id="c")
    rewriting, answering = writer.requests[-2:]
    assert [turn.question for turn in rewriting.conversation] == ["Tell me of the fox."]
    assert [turn.answer for turn in rewriting.conversation] == ["It jumps [1]."]
    assert answering.question == "What does the fox do?" == answer.settings["asked"]
    assert answer.question == "And what does it do?" and not answering.conversation


@pytest.mark.parametrize("rewriting", ["x " * 400, "It jumps over the lazy dog.", "Where do whales sleep at night?"])
def test_a_rewriting_that_is_no_question_or_another_is_not_used(
    library: Library, writer: ScriptedWriter, rewriting: str
) -> None:
    writer.reply = lambda request: rewriting if request.instruction == prompt.REWRITE else "Yes [1]."
    ask(library, "Tell me of the fox.", conversation_id="c")
    asked = ask(library, "And what does its tail look like?", conversation_id="c").settings["asked"]
    assert asked == "Tell me of the fox. And what does its tail look like?"


# Whole documents


def noting(request: WriterRequest) -> str:
    """Notes the first passage of each part; combines notes by repeating their numbers."""
    if request.instruction == prompt.COMBINE:
        numbers = re.findall(r"\[\d+\]", "".join(request.notes))
        return "All of it: " + " ".join(numbers)
    return f"Something is said [{request.passages[0].number}]."


@pytest.fixture(scope="module")
def register_home(filled_home: Path, model: LandmarkModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of the three documents and a long one, to be copied."""
    folder = tmp_path_factory.mktemp("register")
    shutil.copytree(filled_home, folder / "home")
    text = "".join(f"Item {n} of the register is kept in room {n * 7}. " * 3 + "\n\n" for n in range(60))
    (folder / "register.txt").write_text(text)
    with Library.open(folder / "home", model, shard_bytes=SHARD_BYTES) as library:
        add(library, folder / "register.txt")
    return folder / "home"


@pytest.fixture
def three(request: pytest.FixtureRequest, three: dict[str, str], register_home: Path, tmp_path: Path) -> dict[str, str]:
    """With a long one, unless the test does not ask for it."""
    if "long_document" in request.fixturenames:
        shutil.rmtree(tmp_path / "home")
        shutil.copytree(register_home, tmp_path / "home")
    return three


@pytest.fixture
def long_document(library: Library) -> str:
    return next(document.id for document in library.documents.list() if document.title == "register")


def test_a_task_over_a_whole_document_reads_all_of_it_and_cites(
    library: Library, writer: ScriptedWriter, long_document: str
) -> None:
    writer.reply = noting
    scope = Scope((long_document,))
    items = list(library.ask("List all items.", within=scope))
    answer = items[-1]
    assert isinstance(answer, Answer) and answer.found
    progress = [item for item in items if isinstance(item, Progress)]
    assert [one.done for one in progress] == sorted(one.done for one in progress)
    assert progress[0].done == 0 and progress[-1].done == progress[-1].total - 1
    read = [passage for request in writer.requests for passage in request.passages]
    assert [passage.number for passage in read] == list(range(1, len(read) + 1))
    assert "".join("".join(one.text.split()) for one in read) == "".join(
        "".join(library.view.passages.text(long_document).split())
    )
    assert len(answer.citations) == len(progress) - 1
    for citation in answer.citations:
        assert read[citation.number - 1].text == answer.passages[citation.passage].text


def test_notes_that_are_too_long_are_combined_in_groups(
    library: Library, writer: ScriptedWriter, long_document: str
) -> None:
    much = " ".join(f"Much of {n} [1]." for n in range(500))
    writer.reply = lambda request: much if request.passages else "Less [1]."
    items = list(library.ask("Summarise.", within=Scope((long_document,))))
    combining = [request for request in writer.requests if request.instruction == prompt.COMBINE]
    assert len(combining) > 1
    assert all(sum(map(len, request.notes)) < 9000 for request in combining)
    progress = [item for item in items if isinstance(item, Progress)]
    assert all(one.done < one.total for one in progress)


def test_a_short_document_is_given_to_the_writer_at_once(
    library: Library, writer: ScriptedWriter, three: dict[str, str]
) -> None:
    ask(library, "Summarise this.", within=Scope((three["rain"],)))
    (request,) = writer.requests
    assert "".join(passage.text for passage in request.passages).split() == TEXTS["rain"].split()


def test_a_task_can_be_stopped_between_two_parts(library: Library, writer: ScriptedWriter, long_document: str) -> None:
    writer.reply = noting
    answer = ask(library, "Summarise.", within=Scope((long_document,)), cancelled=lambda: len(writer.requests) > 1)
    assert len(writer.requests) == 2 and answer.text == "" and library.answers.get(answer.id) == answer


def test_a_task_over_all_documents_can_be_stopped_while_their_segments_are_looked_up(
    library: Library, writer: ScriptedWriter, long_document: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up: list[int] = []

    def counted(*place: object) -> None:
        looked_up.append(1)

    monkeypatch.setattr(passages, "segment_passage", counted)
    answer = ask(library, "Summarise.", whole=True, cancelled=lambda: len(looked_up) > 1)
    assert len(looked_up) == 2 and not writer.requests and answer.settings["interrupted"]


def test_without_chosen_documents_a_task_is_an_ordinary_question_unless_wanted(
    library: Library, writer: ScriptedWriter
) -> None:
    assert not ask(library, "Summarise all.").settings["whole"]
    assert ask(library, "Summarise all.", whole=True).settings["whole"]
    assert {passage.title for passage in writer.requests[-3].passages} <= set(TEXTS)
    with pytest.raises(NotFound):
        ask(library, "Summarise.", within=Scope(("unknown",)), whole=True)


def test_a_user_uses_the_librarys_writer_and_cannot_change_it(library: Library, writer: ScriptedWriter) -> None:
    mine = library.as_seen_by(Principal("u1", "ada"))
    assert mine.writer is writer
    with pytest.raises(PermissionDenied):
        mine.use_writer(None)
    assert library.writer is writer
