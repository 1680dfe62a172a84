"""Questions made of sentences that have something left out: rough ones, but as many as there is text.

A name, a number or a year of a sentence becomes the answer, what is left the question (cloze translation without the
translation, cf. arXiv 1906.04980, section 2.2). Words are dropped and parts change places, or questions would be found
by their wording alone.
"""

import random
import re
from collections.abc import Iterator

from model.training.data.questions.facts import MONTHS
from model.training.data.questions.pseudo_queries import NO_TERM, MadeQuestion

SENTENCE = re.compile(r"(?<=[.!?]\s)[A-Z][^.!?\n]{40,220}[.](?=\s|$)")
_MONTH = "|".join((*MONTHS, "May", "February", "September", "December"))
_DAY = rf"(?:(?:{_MONTH}) )?(?:\d{{1,2}}, )?"
YEAR = re.compile(rf"\b(?:(?:[Ii]n|[Ss]ince|[Bb]y|[Uu]ntil) )?(?P<said>{_DAY}(?:1[0-9]{{3}}|20[0-2][0-9]))\b")
_NUMBER_WORD = "two|three|four|five|six|seven|eight|nine|ten|twelve|(?:one|two|three) (?:hundred|thousand|million)"
COUNT = re.compile(rf"\b(?P<said>\d[\d,.]*\d|\d|{_NUMBER_WORD}) (?P<unit>[a-z]{{3,}}s)\b")
NAME = re.compile(r"(?<![.!?] )(?<!^)\b(?P<said>[A-Z][\w'-]+(?: (?:of|the|and|de) (?=[A-Z])| (?=[A-Z])|[\w'-])*)")
SUBJECT = re.compile(
    r"^(?P<said>(?:(?:The|A|An) )?[A-Za-z][\w'-]*(?: [\w'-]+){0,3}?) "
    r"(?P<verb>is|are|was|were|has|have|had|can|may|must|[a-z]{3,}ed) "
)
SUBJECTS = 0.35
"""How often the subject of a sentence is asked for, where one is seen: these questions read well."""
LEFT_OUT = 0.12
"""How often a word is dropped."""
TURNED = 0.3
"""How often what stands behind the answer comes first."""
FEWEST_WORDS = 4


def clozes(text: str, random_: random.Random) -> Iterator[MadeQuestion]:
    """At most one question for each sentence that is not too long: "The first satellite was launched in October 1957."
    gives "When the first satellite was launched?"."""
    for found in SENTENCE.finditer(text):
        made = _cloze(found[0][:-1], random_)
        if made is not None:
            yield MadeQuestion(made.question, found.start() + made.start, found.start() + made.stop)


def _cloze(sentence: str, random_: random.Random) -> MadeQuestion | None:
    subject = SUBJECT.match(sentence)
    if subject and subject["said"].split()[0].lower() not in NO_TERM and random_.random() < SUBJECTS:
        rest = sentence[subject.end("said") + 1 :]
        asked = f"{random_.choice(('What', 'Which', 'Who'))} {_clause(rest, random_)}"
        return MadeQuestion(asked + "?", subject.start("said"), subject.end("said"))
    found: list[tuple[str, re.Match[str], tuple[int, int]]] = []
    for match in YEAR.finditer(sentence):
        found.append((random_.choice(("When", "When", "In what year", "What year")), match, match.span()))
    for match in COUNT.finditer(sentence):
        found.append((f"How many {match['unit']}", match, match.span()))
    for match in NAME.finditer(sentence):
        found.append((random_.choice(("Who", "What", "Which", "Where")), match, match.span("said")))
    if not found:
        return None
    ask, match, gap = random_.choice(found)
    before, after = sentence[: gap[0]].strip(), sentence[gap[1] :].strip()
    before, after = _clause(before[::-1], random_)[::-1], _clause(after, random_)
    rest = f"{after} {before}" if random_.random() < TURNED else f"{before} {after}"
    words = [word for word in rest.split() if random_.random() > LEFT_OUT]
    if len(words) < FEWEST_WORDS:
        return None
    return MadeQuestion(f"{ask} {_lower(' '.join(words))}?", match.start("said"), match.end("said"))


def _clause(text: str, random_: random.Random) -> str:
    """Up to the first comma at times, if enough is left."""
    cut = text.find(",")
    return text[:cut] if cut > 25 and random_.random() < 0.5 else text


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
