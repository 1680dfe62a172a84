from pathlib import Path

import pytest

from research.train.data import span_questions
from research.train.data.questions.definitions import asked_term, defining_span

PASSAGE = (
    "Memories fade. The loss of long-term memory after disease or physical trauma is known as amnesia. "
    "Amnesia of soldiers was studied in many hospitals. Another disorder is aphasia."
)
MEANING = "Loss of long-term memory as a result of disease, trauma."


@pytest.mark.parametrize(
    ("question", "term"),
    [
        ("What is amnesia?", "amnesia"),
        ("Define spreading activation.", "spreading activation"),
        ("What does the term “triad” mean?", "triad"),
        ("How is retrograde amnesia defined?", "retrograde amnesia"),
        ("Who studied amnesia?", None),
    ],
)
def test_the_term_of_a_question_is_known(question: str, term: str | None) -> None:
    assert asked_term(question) == term


def test_a_definition_is_the_sentence_that_says_it_not_the_one_that_repeats_the_term() -> None:
    start, stop = defining_span(PASSAGE, "amnesia", MEANING) or (0, 0)
    assert PASSAGE[start:stop] == "loss of long-term memory after disease or physical trauma"


def test_a_term_that_is_only_mentioned_is_not_defined() -> None:
    assert defining_span(PASSAGE, "aphasia", "Inability to understand or produce speech.") is None


def test_questions_about_documents_held_out_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {
        "id": "1",
        "context_title": "Memory",
        "context": PASSAGE,
        "question": "What is amnesia?",
        "answers": [MEANING],
        "answer_starts": None,
    }
    monkeypatch.setattr(span_questions, "read_jsonl", lambda _: [row, {**row, "context_title": "Soldiers"}])
    monkeypatch.setattr(span_questions, "_passages", lambda *_: set())
    questions = span_questions.read_span_questions(Path("data"), "train", ["openstax_glossary"], held_out=["Memory"])
    assert [each.title for each in questions] == ["Soldiers"]
    (piece, start, stop) = questions[0].spans[0]
    assert questions[0].pieces[piece][start:stop] == questions[0].answers[0]
