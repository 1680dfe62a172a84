"""The questions made for fixed seeds are the recorded ones. To record anew (with a reason):

python -c "from tests.research.data.test_made_questions import record; record()"
"""

import json
import random
from pathlib import Path

from research.train.data.questions.cloze_questions import cloze_questions
from research.train.data.questions.facts import Facts
from research.train.data.questions.pseudo_queries import definitions
from research.train.data.questions.sentence_questions import sentence_questions

RECORDED = Path(__file__).parents[2] / "golden" / "made_questions.json"
TEXT = (
    "Of bridges. The first bridge over the river was designed by Maria Lund in October 1857 and carried four tracks. "
    "It was rebuilt in 1931, because the floods of that year had damaged the piers of the older structure. "
    "A caisson is a watertight chamber that is used for work under water. In 1874, the town council opened a toll "
    "house near Port Ellen for the carts of the farmers. The engineers chose granite from the quarries of Aberdeen. "
    "Steel contains small amounts of carbon, which makes the metal harder. The dams are the works of beavers."
)


def made_questions() -> dict[str, list[list[object]]]:
    made: dict[str, list[list[object]]] = {"facts": [], "clozes": [], "sentences": [], "definitions": []}
    facts = Facts(random.Random(0))
    for _ in range(40):
        fact = facts.draw()
        made["facts"] += [[each.sentence, each.question, each.value] for each in (fact, facts.distractor(fact))]
    words = {"design", "rebuild", "open", "damage", "choose", "carry"}
    for seed in range(6):
        for kind, found in (
            ("clozes", cloze_questions(TEXT, random.Random(seed))),
            ("sentences", sentence_questions(TEXT, "Lund Bridge", random.Random(seed), words.__contains__)),
            ("definitions", definitions(TEXT, random.Random(seed))),
        ):
            made[kind] += [[each.question, TEXT[each.start : each.stop]] for each in found]
    return made


def record() -> None:
    RECORDED.write_text(json.dumps(made_questions(), indent=1) + "\n")


def test_made_questions_are_the_recorded_ones() -> None:
    assert made_questions() == json.loads(RECORDED.read_text())
