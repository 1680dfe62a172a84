"""Borders of sentences."""

from model.scoring.sentences import may_answer, sentence_borders


def test_a_sentence_goes_on_over_a_hard_line_break() -> None:
    text = """A heading of this page
The keeper burned whale oil before the lamp was electrified, and left the island in
1987. It was a long
journey: Thomas Reed went home to a small town in the far south of the country, to
Sandvik. An item without a stop

Another item of this list
- a third item
"""
    assert [text[start:end].replace("\n", " ") for start, end in sentence_borders(text)] == [
        "A heading of this page",
        "The keeper burned whale oil before the lamp was electrified, and left the island in 1987.",
        "It was a long journey: Thomas Reed went home to a small town in the far south of the country, to Sandvik.",
        "An item without a stop",
        "Another item of this list",
        "- a third item",
    ]
    paragraphs = (
        "A heading as long as a line of text, but over a paragraph that is one line\n" + 9 * "The cairn is old. "
    )
    assert next(sentence_borders(paragraphs)) == (0, paragraphs.index("\n"))


def test_headings_questions_and_contents_answer_nothing() -> None:
    assert may_answer("The cairn was built by surveyors.")
    assert not may_answer("Who built the cairn on the hill?")
    assert not may_answer("Cairns of the north")
    assert not may_answer("4.9.3 Plan and method of the survey....................... 47")
    assert may_answer("He waited for us ... and left before the storm.")
