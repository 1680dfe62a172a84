"""Questions as people ask them, made of sentences by moving their parts.

"The first satellite was launched by the Soviet Union in October 1957." gives "When was the first satellite launched?",
"What was launched by the Soviet Union?" and others (subject-auxiliary inversion as in Heilman and Smith 2010, "Good
question!", section 2, by patterns instead of parse trees).
"""

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from model.training.data.questions.cloze_questions import COUNT, SENTENCE, YEAR
from model.training.data.questions.pseudo_queries import NO_TERM, MadeQuestion
from model.training.data.questions.verb_forms import PRESENT, base_form, is_participle

_WORD = r"[\w'’-]+"
_AUXILIARY = "is|are|was|were|can|could|may|might|must|will|would|should|has|have|had"
LEAD = re.compile(r"^(?P<lead>(?:In|On|At|By|After|Since|During|From|Until|For|Under) [^,]{3,40}), (?=\w)")
"""What may stand before the subject: "In 1957, ..."."""
NO_SUBJECT = re.compile(
    r"\b(?:that|which|who|whom|whose|because|if|when|while|where|as|but|or|than|to|there|this|these|those|we|i|not|said"
    r"|before|after|nor|once|until|unless|all|both|note|see)\b",
    re.IGNORECASE,
)
"""What shows that the words before a verb are more than its subject, or less."""
PRONOUN = frozenset(("he", "she", "it"))
OF_ANOTHER = frozenset(("its", "his", "her", "their", "our", "my"))
OF_A_NAME = frozenset(("the", "a", "an", "its", "his", "her", "their", "this", "each", "every", "some", "most", "all"))
"""Words behind which no verb stands."""
OBJECT = re.compile(
    r"^(?!(?:in|on|at|by|for|from|to|of|with|that|as|into|up|out|down|off|back|over|away|well)\b)"
    rf"(?P<said>{_WORD}(?: {_WORD}){{0,5}}?)"
    r"(?= (?:in|on|at|by|for|from|to|with|and|that|which|as|into|during|after|before|when|while|because|under|through"
    r"|within|between|if|where|using|over|until)\b|[,;:(]|$)"
)
PLACE = re.compile(
    r"\b(?P<where>in|at|near|from|on) (?P<said>(?:the )?[A-Z][\w-]+(?:(?: of| of the)? [A-Z][\w-]+)*)(?![’'])"
)
AGENT = re.compile(
    rf"\bby (?P<said>{_WORD}(?: {_WORD}){{0,5}}?)(?= (?:in|on|at|for|from|to|with|and|as|who|which)\b|[,;]|$)"
)
REASON = re.compile(r"\b(?:because|so that|in order to) (?P<said>[^,;]{12,90})")
PURPOSE = re.compile(r"^(?:used|designed|intended|needed|required) (?P<gap>(?:to|for) (?P<said>[^,;]{8,80}))")
END = re.compile(r"[,;:(]| (?:which|who|where|while|although|but|whereas|so that) ")
ADVERBS = re.compile(r"\b(?:also|however|therefore|thus|usually|often|generally|typically|then|finally|still|already) ")
PERSON = re.compile(r"^[A-Z][a-z]+(?: [A-Z]\.)*(?: [A-Z][a-z]+){1,2}$")
FEWEST_WORDS = 4
LONGEST_SUBJECT, LONGEST_NAME = 7, 5
"""Words of a subject, and of a title that stands for one."""
JOINED = 0.5
"""How often what stands behind an "and" is left away."""
LEFT_OUT = 0.25
"""How often one word is dropped, so that questions are not found by their wording alone."""
BARE = 0.25
"""How often a question is written as into a search box."""


@dataclass(frozen=True)
class Clause:
    """A sentence taken apart. Spans are characters of the text."""

    lead: str
    subject: str
    """As it stands in a question."""
    said: tuple[int, int] | None
    """Where the subject stands, if it may be asked for."""
    verb: str
    """Between question word and subject: "was", "did"."""
    stem: str
    """Behind the subject: "" after an auxiliary, "launch" after "did"."""
    stated: str
    """The verb as the sentence has it: "was", "launched"."""
    rest: str
    at: int
    """Where the rest begins."""
    lead_at: int

    def asked(self, ask: str, kept: str, gap: tuple[int, int], said: tuple[int, int], behind: str = "") -> MadeQuestion:
        """The question that has the auxiliary before the subject, and nothing of `gap`. kept: how much of the rest
        stands in it; gap, said: characters of the rest."""
        rest = f"{self.rest[: gap[0]].strip()} {kept[gap[1] :].strip()}".strip()
        parts = (ask, self.verb, self.subject, self.stem, rest, behind)
        return MadeQuestion(" ".join(part for part in parts if part), self.at + said[0], self.at + said[1])


def sentence_questions(
    text: str, title: str, random_: random.Random, knows: Callable[[str], bool]
) -> Iterator[MadeQuestion]:
    """At most one question for each sentence. title: stands for "it", "he" and "she" ("" where it is not known).
    knows: is this a word?"""
    for found in SENTENCE.finditer(text):
        clause = _clause(found[0][:-1], found.start(), title, text, knows)
        if clause is None:
            continue
        asked = list(_questions(clause, random_))
        if asked:
            made = random_.choice(asked)
            question = _worded(made.question, random_)
            if len(question.split()) >= FEWEST_WORDS:
                yield MadeQuestion(question, made.start, made.stop)


def _clause(sentence: str, at: int, title: str, text: str, knows: Callable[[str], bool]) -> Clause | None:
    lead = LEAD.match(sentence)
    begin = lead.end() if lead else 0
    main = sentence[begin:]
    for found in re.finditer(rf"(?<= )(?P<verb>{_WORD}) (?=\S)", main):
        subject, verb, rest = main[: found.start() - 1], found["verb"], main[found.end() :]
        words = subject.split()
        if len(words) > LONGEST_SUBJECT or NO_SUBJECT.search(subject) or re.search(r"[,;:()\"“]", subject):
            return None
        forms = _verb(verb, words[-1].lower(), rest, knows)
        if forms is None:
            continue
        first = words[0].lower()
        said: tuple[int, int] | None = (at + begin, at + begin + len(subject))
        if first in PRONOUN:
            if len(words) > 1 or not title or len(title.split()) > LONGEST_NAME:
                return None
            subject, said = title, None
        elif first in NO_TERM or first in OF_ANOTHER:
            return None
        elif first in OF_A_NAME or re.search(rf"\b{re.escape(first)}\b", text):
            subject = subject[:1].lower() + subject[1:]
        rest_at = at + begin + found.end()
        auxiliary, stem = forms
        return Clause(lead["lead"] if lead else "", subject, said, auxiliary, stem, verb, rest, rest_at, at)
    return None


def _verb(verb: str, before: str, rest: str, knows: Callable[[str], bool]) -> tuple[str, str] | None:
    """("was", "") for an auxiliary, ("did", "launch") for another verb, None for what is none."""
    if before in OF_A_NAME:
        return None
    if verb in ("has", "have", "had"):
        behind = ADVERBS.sub("", rest).split()
        if behind and is_participle(behind[0]):
            return verb, ""
        return {"has": "does", "have": "do", "had": "did"}[verb], "have"
    if re.fullmatch(_AUXILIARY, verb):
        return verb, ""
    if verb in PRESENT:
        return "does", PRESENT[verb]
    base = base_form(verb, knows)
    return ("did", base) if base else None


def _questions(clause: Clause, random_: random.Random) -> Iterator[MadeQuestion]:
    """All that a clause can be asked."""
    if re.match(r"(?:not|n't|no longer)\b", clause.rest):
        return
    kept = _end(clause.rest, random_)
    yield from _of_time_and_place(clause, kept, random_)
    yield from _of_object_and_agent(clause, kept)
    if clause.said:
        words = clause.subject.split()
        ask_for = "Who" if PERSON.match(clause.subject) else "What"
        if ask_for == "What" and len(words) > 2 and words[0] == "the" and random_.random() < 0.5:
            ask_for = f"Which {words[-1]}"
        yield MadeQuestion(f"{ask_for} {clause.stated} {kept}", *clause.said)


def _of_time_and_place(clause: Clause, kept: str, random_: random.Random) -> Iterator[MadeQuestion]:
    for found in YEAR.finditer(clause.rest):
        when = "In what year" if re.fullmatch(r"\d{4}", found["said"]) and random_.random() < 0.3 else "When"
        yield clause.asked(when, kept, found.span(), found.span("said"))
    lead = YEAR.fullmatch(clause.lead)
    if lead:
        start, stop = lead.span("said")
        yield replace(clause, at=clause.lead_at).asked("When", kept, (0, 0), (start, stop))
    for found in COUNT.finditer(clause.rest):
        if clause.stem or clause.rest[: found.start()].split():
            yield clause.asked(f"How many {found['unit']}", kept, found.span(), found.span("said"))
    for found in PLACE.finditer(clause.rest):
        if not YEAR.search(found[0]):
            behind = "from" if found["where"] == "from" else ""
            yield clause.asked("Where", kept, (found.start(), len(kept)), found.span("said"), behind)
    for found in REASON.finditer(clause.rest):
        yield clause.asked("Why", kept, (found.start(), len(kept)), found.span("said"))


def _of_object_and_agent(clause: Clause, kept: str) -> Iterator[MadeQuestion]:
    if clause.stem:
        thing = OBJECT.match(clause.rest)
        if thing and not COUNT.match(thing[0]):
            said = thing.span("said")
            yield clause.asked("Who" if PERSON.match(thing["said"]) else "What", kept, said, said)
        return
    for found in AGENT.finditer(clause.rest):
        if is_participle(clause.rest[: found.start()].split()[-1] if found.start() else ""):
            who = "Who" if found["said"][0].isupper() else "What"
            yield clause.asked(who, kept, (found.start(), len(kept)), found.span("said"), "by")
    purpose = PURPOSE.match(clause.rest)
    if purpose:
        yield clause.asked("What", kept, purpose.span("gap"), purpose.span("said"), "for")


def _end(rest: str, random_: random.Random) -> str:
    """What is kept of what follows the verb."""
    found = END.search(rest, 15)
    if found:
        rest = rest[: found.start()]
    joined = rest.find(" and ")
    if joined > 25 and random_.random() < JOINED:
        rest = rest[:joined]
    return rest


def _worded(question: str, random_: random.Random) -> str:
    question = ADVERBS.sub("", question)
    words = question.split()
    if len(words) > 8 and random_.random() < LEFT_OUT:
        del words[random_.randrange(4, len(words))]
    question = " ".join(words)
    return question.lower() if random_.random() < BARE else question + "?"
