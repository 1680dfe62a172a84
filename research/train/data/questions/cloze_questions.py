"""Cloze questions: sentences with something left out. Rough, but available in any amount.

A name, a number or a year becomes the answer, the rest of the sentence the question (cf. arXiv 1906.04980, section 2.2,
without the translation step). Words are dropped and parts swapped, since otherwise wording alone would find the answer.
"""

import random
import re
from collections.abc import Iterator

from research.train.data.questions.pseudo_queries import MadeQuestion
from research.train.data.questions.word_tables import word_table

SENTENCE = re.compile(r"(?<=[.!?]\s)[A-Z][^.!?\n]{40,220}[.](?=\s|$)")
_MONTH = "January|February|March|April|May|June|July|August|September|October|November|December"
_DAY = rf"(?:(?:{_MONTH}) )?(?:\d{{1,2}}, )?"
YEAR = re.compile(rf"\b(?:(?:[Ii]n|[Ss]ince|[Bb]y|[Uu]ntil) )?(?P<answer>{_DAY}(?:1[0-9]{{3}}|20[0-2][0-9]))\b")
_NUMBER_WORD = "two|three|four|five|six|seven|eight|nine|ten|twelve|(?:one|two|three) (?:hundred|thousand|million)"
COUNT = re.compile(rf"\b(?P<answer>\d[\d,.]*\d|\d|{_NUMBER_WORD}) (?P<unit>[a-z]{{3,}}s)\b")
NAME = re.compile(r"(?<![.!?] )(?<!^)\b(?P<answer>[A-Z][\w'-]+(?: (?:of|the|and|de) (?=[A-Z])| (?=[A-Z])|[\w'-])*)")
SUBJECT = re.compile(
    r"^(?P<answer>(?:(?:The|A|An) )?[A-Za-z][\w'-]*(?: [\w'-]+){0,3}?) "
    r"(?P<verb>is|are|was|were|has|have|had|can|may|must|[a-z]{3,}ed) "
)
SUBJECT_ASKED = 0.35
"""How often a question asks for the subject, where one is recognised: these questions read well."""
WORD_DROPPED = 0.12
SWAPPED = 0.3
"""How often the part after the answer comes first."""
FEWEST_WORDS = 4


def cloze_questions(text: str, random_: random.Random) -> Iterator[MadeQuestion]:
    """At most one question for each sentence of moderate length: "The first satellite was launched in October 1957."
    gives "When the first satellite was launched?"."""
    for found in SENTENCE.finditer(text):
        made = _cloze(found[0][:-1], random_)
        if made is not None:
            yield MadeQuestion(made.question, found.start() + made.start, found.start() + made.stop)


def _cloze(sentence: str, random_: random.Random) -> MadeQuestion | None:
    subject = SUBJECT.match(sentence)
    if subject and not _is_function_word(subject["answer"].split()[0]) and random_.random() < SUBJECT_ASKED:
        ask = random_.choice(("What", "Which", "Who"))
        rest = _shortened(sentence[subject.end("answer") + 1 :], random_)
        return MadeQuestion(f"{ask} {rest}?", *subject.span("answer"))
    gaps: list[tuple[str, re.Match[str], tuple[int, int]]] = []
    for match in YEAR.finditer(sentence):
        gaps.append((random_.choice(("When", "When", "In what year", "What year")), match, match.span()))
    for match in COUNT.finditer(sentence):
        gaps.append((f"How many {match['unit']}", match, match.span()))
    for match in NAME.finditer(sentence):
        gaps.append((random_.choice(("Who", "What", "Which", "Where")), match, match.span("answer")))
    if not gaps:
        return None
    ask, match, gap = random_.choice(gaps)
    before, after = sentence[: gap[0]].strip(), sentence[gap[1] :].strip()
    before, after = _shortened(before[::-1], random_)[::-1], _shortened(after, random_)
    rest = f"{after} {before}" if random_.random() < SWAPPED else f"{before} {after}"
    words = [word for word in rest.split() if random_.random() > WORD_DROPPED]
    if len(words) < FEWEST_WORDS:
        return None
    rest = " ".join(words)
    return MadeQuestion(f"{ask} {rest[:1].lower()}{rest[1:]}?", *match.span("answer"))


def _is_function_word(word: str) -> bool:
    return word.lower() in word_table("words")["not_a_term"]


def _shortened(text: str, random_: random.Random) -> str:
    """Half of the time cut at the first comma, if enough is left."""
    cut = text.find(",")
    return text[:cut] if cut > 25 and random_.random() < 0.5 else text
