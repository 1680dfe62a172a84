"""Questions whose answers are lists: the sentence that announces one, or the words between commas.

"There are three kinds of rock:" before items gives "What are the three kinds of rock?"; the answer is the announcing
sentence, with which its list is quoted. "Sources include oil, coal and gas." gives "What do sources include?"; the
answer is what follows the verb.
"""

import random
import re
from collections.abc import Iterator

from research.train.data.questions.pseudo_queries import MadeQuestion

_ANNOUNCED = re.compile(
    r"(?:^|\n|[.!?] )(?P<said>[A-Z][^.!?:\n]{15,160}):\n{1,2}(?=(?:[-*•] |\(?(?:1|a|A|i)[.)] )\S[^\n]*\n+"
    r"(?:[-*•] |\(?(?:2|b|B|ii)[.)] ))"
)
_BETWEEN_COMMAS = re.compile(
    r"(?:^|\n|[.!?] )(?P<subject>(?:[A-Z][\w’'-]*)(?: [\w’'-]+){0,7}) "
    r"(?P<verb>include|includes|included|consists of|consist of|contains|contain|comprises|are|were|is made up of"
    r"|are made up of) (?P<items>[^.:;\n]{3,60}, [^.:;\n]{3,120}?"
    r",? (?:and|or) [^.:;,\n]{3,50})(?=[.;\n])"
)
_NO_SUBJECT = re.compile(r"\b(?:it|they|this|these|that|there|which|who|but|and|we|you|he|she|if|when)\b", re.I)
_NO_LIST = re.compile(
    r"^(?:In|For|With|When|If|To|At|On|By|As|From|During|After|Before|While|Since|Although|Because|Which|What|How|Under|See)\b"
    r"|\b(?:may|can|might|could|should|will|must|would|also|not|often|usually|was|is|are|were)$"
)
"""No subject by itself."""
_VERB_INSIDE = re.compile(r"\b(?:is|was|are|were|has|had|have|will|would|he|she|they|it)\b")
_KINDS = re.compile(
    r"\b(?P<count>two|three|four|five|six|seven|eight|main|several|following|many|various|different) "
    r"(?P<kind>(?:[a-z-]+ ){0,3}[a-z-]+s\b(?: of (?:[\w-]+ ?){1,3}\b)?)"
)
_FOLLOWING = re.compile(r"\b(?:the )?following(?: [a-z]+)?\b ?|\bas follows\b|\bbelow\b", re.I)
_VERB = re.compile(
    r"^(?P<subject>.{3,60}?) (?P<verb>are|is|include|includes|may|must|shall|should|can|will|has|have)\b ?"
)
_ASK_KIND = (
    "What are the {kind}?",
    "Which {kind} are there?",
    "What {kind} are there?",
    "List the {kind}.",
    "Name the {kind}.",
    "What are the {count} {kind}?",
    "{kind}",
)
_LONGEST = 140


def listed_questions(text: str, random_: random.Random) -> Iterator[MadeQuestion]:
    """A question for every list that is announced or stands in a sentence, as far as its words allow one."""
    for found in _ANNOUNCED.finditer(text):
        said = found["said"]
        if _NO_LIST.search(said) and not _KINDS.search(said):
            continue
        asked = _of_announcement(said, random_)
        if asked:
            start, stop = found.span("said")
            yield MadeQuestion(asked, max(start, stop - _LONGEST), stop)
    for found in _BETWEEN_COMMAS.finditer(text):
        subject, verb = found["subject"], found["verb"]
        if _NO_SUBJECT.search(subject) or _NO_LIST.search(subject) or _VERB_INSIDE.search(found["items"]):
            continue
        start, stop = found.span("items")
        subject = subject[0].lower() + subject[1:] if subject.split()[0].lower() in ("the", "a", "an") else subject
        yield MadeQuestion(_of_sentence(subject, verb, found["items"], random_), start, min(stop, start + _LONGEST))


def _of_announcement(said: str, random_: random.Random) -> str | None:
    if kinds := _KINDS.search(said):
        kind, count = kinds["kind"].strip(), kinds["count"]
        if len(kind.split()) > 1 or random_.random() < 0.2:
            return random_.choice(_ASK_KIND).format(kind=kind, count=count)
    plain = re.sub(r"\s+", " ", _FOLLOWING.sub("", said)).strip(" ,")
    if random_.random() < 0.35 and len(plain.split()) > 3:
        return plain.lower() if random_.random() < 0.5 else f"What are {plain[0].lower()}{plain[1:]}?"
    clause = _VERB.match(said)
    if clause is None or _NO_SUBJECT.search(clause["subject"]):
        return None
    subject, verb = clause["subject"], clause["verb"]
    subject = subject[0].lower() + subject[1:]
    rest = re.sub(r"\s+", " ", _FOLLOWING.sub("", said[clause.end() :])).strip(" ,")
    if verb in ("include", "includes"):
        return f"What {'does' if verb == 'includes' else 'do'} {subject} include?"
    return f"What {verb} {subject} {rest}".rstrip() + "?"


def _of_sentence(subject: str, verb: str, items: str, random_: random.Random) -> str:
    if random_.random() < 0.25:
        return f"{random_.choice(('list of ', '', 'examples of '))}{subject}"
    if verb in ("are", "were"):
        return f"{random_.choice(('What', 'Which'))} {verb} {subject}?"
    if verb.startswith(("is ", "are ")):
        be, rest = verb.split(" ", 1)
        return f"What {be} {subject} {rest}?"
    word = {"includes": "include", "included": "include", "contains": "contain", "comprises": "comprise"}.get(
        verb, verb
    )
    word = word.replace("consists", "consist")
    do = "did" if verb == "included" else "does" if verb.split()[0].endswith("s") else "do"
    return f"What {do} {subject} {word}?"
