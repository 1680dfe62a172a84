"""What people are told of an answer's outcome and of its evidence: the one place of these words.

The page (`/ui/words.js`), the command line, exports and chat clients take them from here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from retrieval.types.defaults import DecidedBy, Outcome
    from retrieval.types.passages import Answer

NOTHING_FOUND: Final = "No answer was found in the documents."
"""Of what was looked at. It is never said that the documents do not hold one: the nearest passages may."""

OUTCOMES: dict[Outcome, tuple[str, str]] = {
    "found": ("", ""),
    "perhaps": ("Perhaps.", "No passage answers the question clearly. This is the nearest: check it on its page."),
    "not_found": (NOTHING_FOUND, "No passage answers the question clearly."),
}
"""For each outcome what it is called, and what it means."""

SET_ASIDE: Final = "The documents support nothing of what {writer} wrote."
"""Of words in whose place stands what the search says."""

QUOTED_INSTEAD: Final = "So a sentence is quoted."

WHO_CHOSE: dict[DecidedBy, str] = {
    "attention": "Attention chose these passages among the stored blocks, and the model wrote the answer from them.",
    "reader": "Search found these passages, and a reader chose the sentence. Attention decided nothing.",
    "search": "Search found these passages, and their stored keys chose the sentence. Attention decided nothing.",
    "writer": "",
}
"""Of the words of an answer. What a writer was given is said where its answer stands."""

ONE_SENTENCE: Final = "This is one sentence. Summaries, lists and comparisons of whole documents take a writer."
_SURVEY = re.compile(
    r"\b(?:summari[sz]e|summary|overview|outline|compare|comparison|list (?:all|every|each)|"
    r"main (?:points|topics|ideas|findings)|what is (?:this|the) (?:document|paper|report|file|chapter) about)\b",
    re.IGNORECASE,
)


def asks_for_a_survey(question: str) -> bool:
    """Whether no single sentence can be the answer."""
    return _SURVEY.search(question) is not None


def understood_note(answer: Answer) -> str:
    """How the question was read, where it was not as it was put: misspelt words, and what a follow-up refers to."""
    asked = str(answer.settings.get("asked", ""))
    return f"Understood as: {asked}" if asked and asked.strip() != answer.question.strip() else ""


def survey_note(answer: Answer) -> str:
    """What has to be said of one sentence where a whole document was meant; empty for others."""
    return ONE_SENTENCE if answer.settings.get("survey") and answer.text and answer.writer is None else ""


FROM_ITSELF: Final = (
    "The model wrote this from itself: leaving out the passage that it read most changes the answer no more than "
    "leaving out any other. So no passage is shown."
)
"""Of an answer for which what attention read made no difference."""


def who_chose(answer: Answer) -> str:
    """The line for the passages of an answer; empty where there is none, and for a writer's."""
    if answer.decided_by == "attention" and not answer.shows_attention:
        return FROM_ITSELF
    return WHO_CHOSE[answer.decided_by] if answer.found else ""


def set_aside_note(answer: Answer) -> str:
    """What has to be said where an answer is not in its writer's words; empty for others."""
    if not answer.set_aside or answer.writer is None:
        return ""
    note = SET_ASIDE.format(writer=answer.writer.name)
    return f"{note} {QUOTED_INSTEAD}" if answer.found else note


def outcome_note(answer: Answer) -> str:
    """What has to be said of an answer that is a guess, or one sentence where more was asked for; empty for others."""
    notes = [*OUTCOMES["perhaps"]] if answer.outcome == "perhaps" else []
    return " ".join(filter(None, [*notes, survey_note(answer)]))
