"""The checkpoint that ships, through the library: what a newcomer sees first."""

import pytest

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
