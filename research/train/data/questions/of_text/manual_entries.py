"""Questions about the entries of manuals: options, parameters and terms, each with what is said about it.

Three layouts are read: a name on a line of its own with its description below ("lParam", "A pointer to ..."), a name
and a description in one line ("--base  The path ..."), and a name before a colon.
"""

import random
import re
from collections.abc import Iterator

from research.train.data.questions.pseudo_queries import MadeQuestion

_BELOW = re.compile(
    r"\n(?P<name>\[?[A-Za-z_/-][\w.:/-]{1,40}\]?(?: \[[\w, ]+\])?)\n{1,2}(?:(?:Type|Data type): [^\n]{1,60}\n+)*"
    r"(?P<said>[A-Z][^\n]{25,600})"
)
_OPTION = re.compile(
    r"(?:^|\n)[-*• ]*(?P<name>(?:--?[A-Za-z?][\w-]*|/[A-Za-z?][\w:+-]*)(?:(?:, | \| |=)\S{1,20})?)"
    r"(?: \([^)\n]{1,40}\)|:| -|\.)? {1,8}(?P<said>[A-Z][^\n]{25,600})"
)
_COLON = re.compile(r"\n[-*• ]*(?P<name>[A-Za-z][\w /’'-]{2,40}): (?P<said>[A-Za-z][^\n]{30,600})")
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")
_LONGEST = 140
_ASK_OPTION = (
    "What does {name} do?",
    "What does the {name} option do?",
    "What is {name} for?",
    "What is the option {name} used for?",
    "What does {name} mean?",
    "option {name}",
    "{name}",
)
_ASK_NAME = (
    "What is {name}?",
    "What does {name} specify?",
    "What is the meaning of {name}?",
    "What is the {name} parameter?",
    "What does {name} contain?",
    "What is {name} used for?",
    "{name} description",
)
_ASK_TERM = ("What is {name}?", "What is meant by {name}?", "What does {name} mean?", "Define {name}.", "{name}")
_HEADINGS = frozenset(
    ("note", "notes", "example", "examples", "remarks", "important", "tip", "caution", "warning")
    + ("figure", "more on", "source", "table", "prompt", "see also", "link", "url")
)
_LOOKS_CODED = re.compile(r"^[a-z]|[a-z][A-Z]|[_/.:-]|^[A-Z\d]{3,}$")
"""A name that no heading has."""


def manual_entry_questions(text: str, random_: random.Random) -> Iterator[MadeQuestion]:
    """A question for each entry; its answer is the first sentence of what is said."""
    for pattern, ways in ((_OPTION, _ASK_OPTION), (_BELOW, _ASK_NAME), (_COLON, _ASK_TERM)):
        for found in pattern.finditer(text):
            name = found["name"].strip("[]").split(" [")[0]
            if name.lower() in _HEADINGS or (pattern is _BELOW and not _LOOKS_CODED.search(name)):
                continue
            end = _SENTENCE_END.search(found["said"])
            stop = min(end.start() if end else len(found["said"]), _LONGEST)
            while stop == _LONGEST and stop > 60 and found["said"][stop - 1] != " ":
                stop -= 1
            start = found.start("said")
            asked = re.split(r", | \| |=", name)[0] if random_.random() < 0.7 else name
            said = text[start : start + stop].rstrip()
            yield MadeQuestion(random_.choice(ways).format(name=asked), start, start + len(said))
