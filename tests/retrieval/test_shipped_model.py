"""The checkpoint that ships, through the library: what a newcomer sees first."""

import pytest

from retrieval.types.writer import Turn
from tests.retrieval.conftest import add, ask
from tests.tiny_model import shipped_model

TEXT = """Lighthouses of the northern coast

The lighthouse on Gull Island was built in 1871 by the engineer Margaret Holm. It stands 42 metres above the sea and
can be seen from a distance of 19 nautical miles. A lighthouse is a tower with a strong lamp that warns ships of rocks.

Before the lamp was electrified in 1934, the keeper burned whale oil. The last keeper, Thomas Reed, left the island in
1987, when the lamp was made automatic. Since then the house has been used by biologists who count seabirds.

The harbour of Sandvik lies 12 kilometres to the south. Its fishing fleet lands mostly cod and herring. Ferries to the
island leave from the eastern pier every two hours during the summer."""
QUESTIONS = (
    ("When was the lighthouse on Gull Island built?", "1871"),
    ("Who built the lighthouse on Gull Island?", "Margaret Holm"),
    ("What did the keeper burn?", "whale oil"),
    ("Who was the last keeper?", "Thomas Reed"),
    ("Who uses the house since then?", "biologists"),
    ("How far is the harbour of Sandvik?", "12 kilometres"),
    ("Where do ferries to the island leave from?", "eastern pier"),
    ("What does the fishing fleet land?", "cod and herring"),
)


@pytest.fixture
def answers(open_library, write):
    library = open_library(model=shipped_model)
    add(library, write("lighthouses.txt", TEXT))
    return {question: ask(library, question, max_tokens=128, quote=None, k=8) for question, _ in QUESTIONS}


def test_it_quotes_the_sentence_and_points_at_the_words(answers) -> None:
    held = [question for question, wanted in QUESTIONS if wanted in answers[question].text]
    pointed = [question for question, wanted in QUESTIONS if wanted in answers[question].short]
    brief = [question for question in pointed if len(answers[question].short.split()) <= 6]
    assert len(held) >= 7, held
    assert len(brief) >= 6, [(question, answers[question].short) for question, _ in QUESTIONS]


TOWERS = {
    "Norderhoog": "Der Leuchtturm auf der Insel Norderhoog wurde 1871 von der Ingenieurin Margarete Holm gebaut. "
    "Er ist 42 Meter hoch. Bis 1934 brannte dort Waltran. Der letzte Wärter ging 1987.",
    "Suederhoog": "Der Leuchtturm auf der Insel Suederhoog wurde 1902 von dem Maurer Karl Brandt gebaut. "
    "Er ist 28 Meter hoch. Bis 1951 brannte dort Petroleum. Der letzte Wärter ging 1974.",
}


def test_a_question_of_a_conversation_goes_on_with_its_subject_where_it_says_no_other(open_library, write) -> None:
    library = open_library(model=shipped_model)
    for name, text in TOWERS.items():
        add(library, write(f"{name}.txt", f"{name}\n\n{text}"))
    lamp, height = "Womit wurde er beleuchtet?", "Wie hoch ist der Leuchtturm auf Norderhoog?"
    for name, wanted in (("Norderhoog", "Waltran"), ("Suederhoog", "Petroleum")):
        before = [Turn(f"Wer baute den Leuchtturm auf {name}?", "")]
        assert wanted in ask(library, lamp, earlier=before, quote=None, k=8, max_tokens=256).text
        assert "42 Meter" in ask(library, height, earlier=before, quote=None, k=8, max_tokens=256).text
