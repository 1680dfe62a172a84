"""Forms of English verbs, as far as questions made from sentences need them."""

import re
from collections.abc import Callable
from functools import cache

from research.train.data.questions.word_tables import word_table


@cache
def present_forms() -> dict[str, str]:
    """Third person singular -> base form."""
    table = word_table("verb_forms")
    return {**{f"{verb}s": verb for verb in table["regular_present"]}, **table["present"]}


def base_form(verb: str, is_word: Callable[[str], bool]) -> str | None:
    """The base form of a past tense ("launched" -> "launch", "began" -> "begin"); None for any other word."""
    table = word_table("verb_forms")
    if verb in table["past"]:
        return str(table["past"][verb])
    if not re.fullmatch(r"[a-z]{2,}ed", verb) or verb in table["not_verbs"]:
        return None
    stem = verb[:-2]
    guesses = [stem[:-1] + "y"] if stem.endswith("i") else [stem + "e", stem]
    if len(stem) > 3 and stem[-1] == stem[-2]:
        guesses.append(stem[:-1])
    return next((guess for guess in guesses if is_word(guess)), None)


def is_participle(word: str) -> bool:
    """Whether the word looks like a past participle."""
    return word in word_table("verb_forms")["participles"] or (word.endswith("ed") and len(word) > 4)
