"""What small models write when they do not end is kept out of the answer, and the writer is stopped."""

from __future__ import annotations

import pytest

from retrieval.types.writer import WriterRequest, Written
from retrieval.writers.output_filter import OutputFilter, filtered, without_repetition
from tests.scripted_writer import ScriptedWriter

REQUEST = WriterRequest("Answer.", "When?")


def tidy(text: str, size: int = 3) -> tuple[str, str | None]:
    """What is left of a text that comes in pieces of `size` characters, and how it ended."""
    stream = OutputFilter()
    pieces = [stream.add(text[at : at + size]) for at in range(0, len(text), size)]
    return "".join(pieces) + stream.flush(), stream.ended


@pytest.mark.parametrize("size", [1, 3, 200])
@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("In 1981.\n\nQuestion: What else?\nAnswer: More.", "In 1981."),
        ("In 1981.\nEarlier question: When?", "In 1981."),
        ("Answer: In 1981.", "In 1981."),
        ("The documents say: in 1981.", "in 1981."),
        ("Question: When?\n\nThe document says: in 1981.\nQuestion: Why?", "in 1981."),
        ("Quest for truth.\nQuestions remain: many.", "Quest for truth.\nQuestions remain: many."),
        ("A\nQuest", "A\nQuest"),
        ("Question: When?\n\nThe answer is:", ""),
        ("Answer", "Answer"),
        ("The year was 1981", "The year was 1981"),
    ],
)
def test_what_follows_the_answer_and_names_before_it_are_left_out(text: str, left: str, size: int) -> None:
    found, ended = tidy(text, size)
    assert found.strip() == left
    assert (ended == "stop") == (text.count("uestion:") == 1 + text.startswith("Question:"))


def test_a_writer_cannot_turn_the_order_of_letters_about() -> None:
    assert tidy("Open \u202efdp.exe\u202c, \u2067or\u2069 \u05d0\u05d1.") == ("Open fdp.exe, or \u05d0\u05d1.", None)


def test_nothing_is_held_back_that_cannot_be_another_part() -> None:
    stream = OutputFilter()
    assert [stream.add(piece) for piece in ("The dam", " was", " raised.\n", "Que", "ens")] == [
        "The dam", " was", " raised.\n", "", "Queens",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "The dam was raised by three metres. " * 4,
        "".join(f"{n}. The dam was raised by three metres.\n" for n in range(1, 9)),
        "The dam was raised by three metres.\n\nThe document says: The dam was raised by three metres.\n\n"
        + "More. " * 20,
        "It is so. " + "No dam here. Or there. " * 5,
        "It costs 18" + " 000" * 100,
        "It is " + "and the " * 60,
        "1. Flour.\n2. Water.\n" + "".join(f"{n}. \n" for n in range(3, 40)),
        "It is Beijing.\n\n" + "".join(f"The answer is: {n}.\n\n" for n in range(1, 40)),
    ],
)
def test_a_writer_that_says_the_same_again_and_again_is_stopped(text: str) -> None:
    writer = ScriptedWriter(lambda _request: text, written=Written("length"))
    steps, pieces = filtered(writer, REQUEST, lambda: False), []
    while True:
        try:
            pieces.append(next(steps).text)
        except StopIteration as end:
            assert end.value.finish == "repeated"
            break
    assert len("".join(pieces)) < 0.95 * len(text)


@pytest.mark.parametrize(
    "text",
    [
        "| Berth | Free |\n|-------|------|\n" + "".join(f"| A{n} | yes |\n" for n in range(40)),
        "Yes. No. Yes. No. Yes. No. Yes.",
        "".join(f"The dam was raised in {year}. " for year in range(1981, 1999)),
        "It cost 4.5 million. " + "-" * 300,
        "Often. " + "".join(f"The document says: the dam was raised in {year}. " for year in range(1981, 1999)),
    ],
)
def test_tables_lists_and_lines_are_no_repetition(text: str) -> None:
    assert tidy(text) == (text, None)


def test_what_was_repeated_stands_there_once() -> None:
    line = "The dam was raised by three metres."
    assert without_repetition(f"{line} {line}") == line
    assert without_repetition(f"{line}\n\nThe document says: {line}") == line
    assert without_repetition(f"The notice says: {line}\n\nThe document says: {line}") == f"The notice says: {line}"
    assert without_repetition(f"1. {line}\n2. {line}\n") == f"1. {line}"
    assert without_repetition("It costs 18" + "0" * 300) == "It costs 18"
    assert without_repetition("1. Flour.\n2.\n3.\n4.") == "1. Flour."
    assert without_repetition("Rain falls. Snow falls.") == "Rain falls. Snow falls."
