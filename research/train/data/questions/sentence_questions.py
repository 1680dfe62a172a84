"""Questions as people ask them, made from sentences by moving their parts.

"The first satellite was launched by the Soviet Union in October 1957." gives "When was the first satellite launched?",
"What was launched by the Soviet Union?" and others (subject-auxiliary inversion as in Heilman and Smith 2010, "Good
question!", section 2, by patterns instead of parse trees).
"""

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from research.train.data.questions.cloze_questions import COUNT, SENTENCE, YEAR
from research.train.data.questions.pseudo_queries import MadeQuestion
from research.train.data.questions.verb_forms import base_form, is_participle, present_forms
from research.train.data.questions.word_tables import word_table

_WORD = r"[\w'’-]+"
_AUXILIARY = "is|are|was|were|can|could|may|might|must|will|would|should|has|have|had"
LEAD = re.compile(r"^(?P<lead>(?:In|On|At|By|After|Since|During|From|Until|For|Under) [^,]{3,40}), (?=\w)")
"""A phrase before the subject: "In 1957, ..."."""
NO_SUBJECT = re.compile(
    r"\b(?:that|which|who|whom|whose|because|if|when|while|where|as|but|or|than|to|there|this|these|those|we|i|not|said"
    r"|before|after|nor|once|until|unless|all|both|note|see)\b",
    re.IGNORECASE,
)
"""Words that show that what precedes the verb is not just its subject."""
OBJECT = re.compile(
    r"^(?!(?:in|on|at|by|for|from|to|of|with|that|as|into|up|out|down|off|back|over|away|well)\b)"
    rf"(?P<answer>{_WORD}(?: {_WORD}){{0,5}}?)"
    r"(?= (?:in|on|at|by|for|from|to|with|and|that|which|as|into|during|after|before|when|while|because|under|through"
    r"|within|between|if|where|using|over|until)\b|[,;:(]|$)"
)
PLACE = re.compile(
    r"\b(?P<where>in|at|near|from|on) (?P<answer>(?:the )?[A-Z][\w-]+(?:(?: of| of the)? [A-Z][\w-]+)*)(?![’'])"
)
AGENT = re.compile(
    rf"\bby (?P<answer>{_WORD}(?: {_WORD}){{0,5}}?)(?= (?:in|on|at|for|from|to|with|and|as|who|which)\b|[,;]|$)"
)
REASON = re.compile(r"\b(?:because|so that|in order to) (?P<answer>[^,;]{12,90})")
PURPOSE = re.compile(r"^(?:used|designed|intended|needed|required) (?P<gap>(?:to|for) (?P<answer>[^,;]{8,80}))")
END = re.compile(r"[,;:(]| (?:which|who|where|while|although|but|whereas|so that) ")
ADVERBS = re.compile(r"\b(?:also|however|therefore|thus|usually|often|generally|typically|then|finally|still|already) ")
PERSON = re.compile(r"^[A-Z][a-z]+(?: [A-Z]\.)*(?: [A-Z][a-z]+){1,2}$")
FEWEST_WORDS = 4
LONGEST_SUBJECT, LONGEST_NAME = 7, 5
"""Words of a subject, and of a title that replaces one."""
CUT_AT_AND = 0.5
"""How often the part after an "and" is dropped."""
WORD_DROPPED = 0.25
"""How often one word is dropped, so that wording alone does not find the answer."""
SEARCH_STYLE = 0.25
"""How often a question is written as if typed into a search box."""


@dataclass(frozen=True)
class Clause:
    """The parts of a sentence. Positions are characters of the text."""

    lead: str
    subject: str
    """As it stands in a question."""
    subject_span: tuple[int, int] | None
    """Span of the subject; None if it cannot be asked for."""
    auxiliary: str
    """Between question word and subject: "was", "did"."""
    stem: str
    """After the subject: "" after an auxiliary, "launch" after "did"."""
    verb: str
    """As in the sentence: "was", "launched"."""
    rest: str
    rest_start: int
    lead_start: int

    def question(
        self, ask: str, kept: str, gap: tuple[int, int], answer: tuple[int, int], last: str = ""
    ) -> MadeQuestion:
        """The question with the auxiliary before the subject and `gap` left out. kept: the part of the rest that it
        may use; gap, answer: characters of the rest."""
        rest = f"{self.rest[: gap[0]].strip()} {kept[gap[1] :].strip()}".strip()
        parts = (ask, self.auxiliary, self.subject, self.stem, rest, last)
        start, stop = answer
        return MadeQuestion(" ".join(filter(None, parts)), self.rest_start + start, self.rest_start + stop)


def sentence_questions(
    text: str, title: str, random_: random.Random, is_word: Callable[[str], bool]
) -> Iterator[MadeQuestion]:
    """At most one question for each sentence.

    title: replaces "it", "he" and "she" ("" if unknown). is_word: whether a string is an English word.
    """
    for found in SENTENCE.finditer(text):
        clause = _clause(found[0][:-1], found.start(), title, text, is_word)
        if clause is None:
            continue
        candidates = list(_questions(clause, random_))
        if candidates:
            made = random_.choice(candidates)
            question = _worded(made.question, random_)
            if len(question.split()) >= FEWEST_WORDS:
                yield MadeQuestion(question, made.start, made.stop)


def _clause(sentence: str, start: int, title: str, text: str, is_word: Callable[[str], bool]) -> Clause | None:
    lead = LEAD.match(sentence)
    begin = lead.end() if lead else 0
    main = sentence[begin:]
    for found in re.finditer(rf"(?<= )(?P<verb>{_WORD}) (?=\S)", main):
        subject, verb, rest = main[: found.start() - 1], found["verb"], main[found.end() :]
        words = subject.split()
        if len(words) > LONGEST_SUBJECT or NO_SUBJECT.search(subject) or re.search(r"[,;:()\"“]", subject):
            return None
        forms = _verb(verb, words[-1].lower(), rest, is_word)
        if forms is None:
            continue
        in_question = _subject(subject, title, text)
        if in_question is None:
            return None
        first = start + begin
        span = (first, first + len(subject)) if words[0].lower() not in word_table("words")["pronouns"] else None
        return Clause(lead["lead"] if lead else "", in_question, span, *forms, verb, rest, first + found.end(), start)
    return None


def _subject(subject: str, title: str, text: str) -> str | None:
    """The subject as a question has it: the title instead of a pronoun, no capital unless it is a name; None if it
    cannot stand alone."""
    table, words = word_table("words"), subject.split()
    first = words[0].lower()
    if first in table["pronouns"]:
        return title if len(words) == 1 and title and len(title.split()) <= LONGEST_NAME else None
    if first in table["not_a_term"] or first in table["possessives"]:
        return None
    is_name = first not in table["determiners"] and not re.search(rf"\b{re.escape(first)}\b", text)
    return subject if is_name else subject[:1].lower() + subject[1:]


def _verb(verb: str, before: str, rest: str, is_word: Callable[[str], bool]) -> tuple[str, str] | None:
    """Auxiliary and stem: ("was", "") for an auxiliary, ("did", "launch") for another verb, None for other words."""
    if before in word_table("words")["determiners"]:
        return None
    if verb in ("has", "have", "had"):
        following = ADVERBS.sub("", rest).split()
        if following and is_participle(following[0]):
            return verb, ""
        return {"has": "does", "have": "do", "had": "did"}[verb], "have"
    if re.fullmatch(_AUXILIARY, verb):
        return verb, ""
    if verb in present_forms():
        return "does", present_forms()[verb]
    base = base_form(verb, is_word)
    return ("did", base) if base else None


def _questions(clause: Clause, random_: random.Random) -> Iterator[MadeQuestion]:
    """Everything that can be asked about a clause."""
    if re.match(r"(?:not|n't|no longer)\b", clause.rest):
        return
    kept = _kept(clause.rest, random_)
    yield from _of_time_and_place(clause, kept, random_)
    yield from _of_object_and_agent(clause, kept)
    if clause.subject_span:
        words = clause.subject.split()
        ask = "Who" if PERSON.match(clause.subject) else "What"
        if ask == "What" and len(words) > 2 and words[0] == "the" and random_.random() < 0.5:
            ask = f"Which {words[-1]}"
        yield MadeQuestion(f"{ask} {clause.verb} {kept}", *clause.subject_span)


def _of_time_and_place(clause: Clause, kept: str, random_: random.Random) -> Iterator[MadeQuestion]:
    for found in YEAR.finditer(clause.rest):
        when = "In what year" if re.fullmatch(r"\d{4}", found["answer"]) and random_.random() < 0.3 else "When"
        yield clause.question(when, kept, found.span(), found.span("answer"))
    lead = YEAR.fullmatch(clause.lead)
    if lead:
        start, stop = lead.span("answer")
        yield replace(clause, rest_start=clause.lead_start).question("When", kept, (0, 0), (start, stop))
    for found in COUNT.finditer(clause.rest):
        if clause.stem or clause.rest[: found.start()].split():
            yield clause.question(f"How many {found['unit']}", kept, found.span(), found.span("answer"))
    for found in PLACE.finditer(clause.rest):
        if not YEAR.search(found[0]):
            behind = "from" if found["where"] == "from" else ""
            yield clause.question("Where", kept, (found.start(), len(kept)), found.span("answer"), behind)
    for found in REASON.finditer(clause.rest):
        yield clause.question("Why", kept, (found.start(), len(kept)), found.span("answer"))


def _of_object_and_agent(clause: Clause, kept: str) -> Iterator[MadeQuestion]:
    if clause.stem:
        thing = OBJECT.match(clause.rest)
        if thing and not COUNT.match(thing[0]):
            said = thing.span("answer")
            yield clause.question("Who" if PERSON.match(thing["answer"]) else "What", kept, said, said)
        return
    for found in AGENT.finditer(clause.rest):
        if is_participle(clause.rest[: found.start()].split()[-1] if found.start() else ""):
            who = "Who" if found["answer"][0].isupper() else "What"
            yield clause.question(who, kept, (found.start(), len(kept)), found.span("answer"), "by")
    purpose = PURPOSE.match(clause.rest)
    if purpose:
        yield clause.question("What", kept, purpose.span("gap"), purpose.span("answer"), "for")


def _kept(rest: str, random_: random.Random) -> str:
    """The part of what follows the verb that questions use."""
    found = END.search(rest, 15)
    if found:
        rest = rest[: found.start()]
    joined = rest.find(" and ")
    if joined > 25 and random_.random() < CUT_AT_AND:
        rest = rest[:joined]
    return rest


def _worded(question: str, random_: random.Random) -> str:
    question = ADVERBS.sub("", question)
    words = question.split()
    if len(words) > 8 and random_.random() < WORD_DROPPED:
        del words[random_.randrange(4, len(words))]
    question = " ".join(words)
    return question.lower() if random_.random() < SEARCH_STYLE else question + "?"
