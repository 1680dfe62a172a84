"""How right an answer is, as SQuAD counts it: lower case, no punctuation, no articles."""

import re
import string
from collections import Counter
from collections.abc import Sequence


def words(text: str) -> list[str]:
    """As SQuAD compares them."""
    text = "".join(character for character in text.lower() if character not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def exact_and_f1(said: str, answers: Sequence[str]) -> tuple[float, float]:
    """Best over the acceptable answers; no answer is right where there is none."""
    best = (0.0, 0.0)
    for answer in answers or ("",):
        a, b = words(said), words(answer)
        common = sum((Counter(a) & Counter(b)).values())
        f1 = float(a == b) if not a or not b else (2 * common / (len(a) + len(b)))
        best = max(best, (float(a == b), f1), key=lambda pair: pair[1])
    return best


def holds(said: str, answers: Sequence[str]) -> bool:
    """Whether an acceptable answer stands in `said` word for word."""
    said = f" {' '.join(words(said))} "
    return any(f" {' '.join(words(gold))} " in said for gold in answers)
