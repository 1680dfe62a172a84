"""Forms of English verbs, as far as questions made of sentences need them."""

import re
from collections.abc import Callable

# fmt: off
PAST = {
    "became": "become", "began": "begin", "brought": "bring", "built": "build", "bought": "buy", "came": "come",
    "chose": "choose", "drew": "draw", "drove": "drive", "ate": "eat", "fell": "fall", "felt": "feel",
    "fought": "fight", "found": "find", "flew": "fly", "forbade": "forbid", "gave": "give", "went": "go",
    "grew": "grow", "held": "hold", "kept": "keep", "knew": "know", "led": "lead", "left": "leave", "lent": "lend",
    "lost": "lose", "made": "make", "meant": "mean", "met": "meet", "paid": "pay", "ran": "run", "rose": "rise",
    "said": "say", "sold": "sell", "sent": "send", "showed": "show", "sang": "sing", "spoke": "speak",
    "spent": "spend", "stood": "stand", "swore": "swear", "took": "take", "taught": "teach", "told": "tell",
    "thought": "think", "threw": "throw", "understood": "understand", "wore": "wear", "won": "win",
    "wrote": "write",
}
PARTICIPLES = frozenset((
    "been", "become", "begun", "brought", "built", "bought", "chosen", "done", "drawn", "driven", "found",
    "forbidden", "given", "gone", "grown", "held", "kept", "known", "led", "left", "lost", "made", "meant", "met",
    "paid", "put", "run", "seen", "sold", "sent", "set", "shown", "spoken", "spent", "taken", "taught", "told",
    "thought", "thrown", "understood", "won", "written", "read", "cut", "born", "hidden", "broken", "beaten",
    "laid", "split", "spread",
))
PRESENT = {f"{verb}s": verb for verb in (
    "contain", "include", "provide", "use", "return", "require", "specify", "mean", "cause", "allow", "help", "produce",
    "make", "give", "take", "show", "describe", "define", "represent", "support", "enable", "form", "reduce",
    "increase",
    "determine", "receive", "remove", "prevent", "protect", "cover", "affect", "involve", "indicate", "prohibit",
    "establish", "create", "control", "hold", "need", "begin", "become", "consist", "occur", "depend", "lead", "refer",
)} | {"specifies": "specify", "establishes": "establish", "goes": "go", "does": "do", "teaches": "teach"}
# fmt: on
NO_VERB = frozenset(("united", "limited", "advanced", "related", "need", "speed", "seed", "feed", "breed", "indeed"))


def base_form(verb: str, knows: Callable[[str], bool]) -> str | None:
    """ "launched" -> "launch", "began" -> "begin"; None for what is no past tense. knows: is this a word?"""
    if verb in PAST:
        return PAST[verb]
    if not re.fullmatch(r"[a-z]{2,}ed", verb) or verb in NO_VERB:
        return None
    stem = verb[:-2]
    guesses = [stem[:-1] + "y"] if stem.endswith("i") else [stem + "e", stem]
    if len(stem) > 3 and stem[-1] == stem[-2]:
        guesses.append(stem[:-1])
    return next((guess for guess in guesses if knows(guess)), None)


def is_participle(word: str) -> bool:
    """Does it look like the past participle of a verb?"""
    return word in PARTICIPLES or (word.endswith("ed") and len(word) > 4)
