"""Questions made from sentences: what is asked, and what is left alone."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from retrieval.suggestions import questions
from retrieval.suggestions.keyphrases import key_terms
from retrieval.suggestions.questions import candidates, describe, ranked_candidates
from retrieval.types.records import Document

DOCUMENT = Document("d", "a.pdf", "Walks", None, 1, 10, 1, 1, "ready", "", "", "pdf")


def asked(text: str) -> list[str]:
    return [candidate.question for candidate in candidates(text, lambda _position: False)]


@pytest.mark.parametrize(
    ("sentence", "question"),
    [
        ("XPath is a standard query language for XML files.", "What is XPath?"),
        ("Encoding is the input of information into the memory system.", "What is encoding?"),
        ("The stone tower was built by the forestry office in 1908.",
         "When was the stone tower built by the forestry office?"),
        ("Landmark tokens are used to represent whole blocks of text.", "What are landmark tokens used for?"),
        ("The assessment plan requires a signature of both parties.", "What does the assessment plan require?"),
        ("The main goal of the academy is to teach everybody who wants to learn.",
         "What is the main goal of the academy?"),
        ("They are delivered by the Joint Authorization Board (JAB) every year.", "What does JAB stand for?"),
        ("1.1 Who Should Use This Document?", "Who Should Use This Document?"),
    ],
)  # fmt: skip
def test_a_sentence_becomes_the_question_that_it_answers(sentence: str, question: str) -> None:
    assert asked(sentence) == [question]


@pytest.mark.parametrize(
    "sentence",
    [
        "This is a method of which nobody knows what it is for.",
        "The following table is a list of all fields with their types.",
        "It was built by the forestry office in the year 1908.",
        "Syntax is the same, whatever the root element is called.",
        "The result of the second step is a number between one and ten.",
        "Region: North; Price: 41.50; Year: 1908; Dam is a dam of dams.",
        "The system requires a lot of memory to be of any use at all.",
        "which is a standard query language for XML files.",
    ],
)
def test_what_is_unclear_beside_its_sentence_is_not_asked(sentence: str) -> None:
    assert asked(sentence) == []


def test_references_are_not_asked_about() -> None:
    text = "XPath is a standard query language for XML files."
    assert not list(candidates(text, lambda _position: True))


def test_what_a_document_speaks_of_most_is_asked_first_and_only_once() -> None:
    text = (
        "Granite is a hard stone of volcanic origin. XPath is a standard query language for XML files. XPath is used. "
        "Everybody likes XPath. XPath requires a root element to begin with. We like XPath and trees."
    )
    found = ranked_candidates(text, ["XPath"])
    assert [one.question for one in found] == ["What is XPath?", "What is granite?"]


def test_key_terms_are_phrases_that_come_often() -> None:
    text = "The landmark token is small. A landmark token opens a block. Each landmark token of the block counts. " * 3
    assert key_terms(text)[0] == "landmark token" and "the" not in key_terms(text)


def test_key_terms_are_no_function_words_of_the_language_of_the_text() -> None:
    german = "Die Ausweiskarte wird von der Behörde ausgestellt, und die Ausweiskarte ist zwei Jahre gültig. " * 4
    french = "L’accord de confidentialité est signé par les parties, et l’accord dure deux ans pour tous. " * 4
    polish = "Faktura jest wystawiana przez sprzedawcę, a faktura ma być wysłana do systemu w ciągu dnia. " * 4
    assert "Ausweiskarte" in key_terms(german) and not {"Die", "wird", "von", "der", "zwei"} & set(key_terms(german))
    assert "accord" in key_terms(french) and not {"les", "est", "par", "deux"} & set(key_terms(french))
    assert "Faktura" in key_terms(polish) and not {"jest", "przez", "być"} & set(key_terms(polish))


def test_a_description_begins_with_the_text_and_not_with_its_licence() -> None:
    licence = "This work is licensed under a Creative Commons Attribution 4.0 International License."
    about = describe(DOCUMENT, f"{licence}\n\nThe footpath around the lake is eleven kilometres long in all.")
    assert about.first_lines.startswith("The footpath")


def test_a_description_begins_with_the_first_sentence_that_is_no_heading() -> None:
    text = "Walks\n\nAround the lake\n\nThe footpath around the lake is eleven kilometres long and closed in winter."
    about = describe(DOCUMENT, text)
    assert about.kind == "PDF" and about.first_lines.startswith("The footpath") and about.questions == ()


@pytest.mark.parametrize("call", ["rename", "replace"])
def test_two_processes_may_describe_a_document_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    put, first = getattr(os, call), describe(DOCUMENT, "A cairn is a pile of stones that was built as a landmark.")
    others = [replace(first, questions=("What is a cairn?",))]

    def after_the_other(unfinished: Path, file: Path) -> None:
        if others:
            questions.keep(tmp_path, others.pop())
        put(unfinished, file)

    monkeypatch.setattr(os, call, after_the_other)
    questions.keep(tmp_path, first)
    assert questions.kept(tmp_path) == first
    assert [file.name for file in tmp_path.iterdir()] == [questions.FILE]
