"""Made-up facts and where they are inserted."""

import random
from pathlib import Path

import numpy as np

from research.train.data.corpus import sample_texts
from research.train.data.questions.fact_insertion import insert_facts, sentence_ends, tokenize_fact
from research.train.data.questions.facts import Facts, relations_about_subjects, standalone_relations
from research.train.data.tokenizer import train_tokenizer


def test_no_two_facts_answer_the_same_question() -> None:
    for seed in range(5):
        facts = Facts(random.Random(seed))
        drawn = [facts.draw() for _ in range(60)]
        drawn += [facts.distractor(fact) for fact in drawn]
        about = [(fact.relation, fact.subject) for fact in drawn]
        assert len(set(about)) == len(about)
        for fact in drawn:
            assert fact.subject is None or fact.subject.lower() in fact.question.lower()
            assert "{" not in fact.sentence + fact.question
            assert fact.sentence.startswith(fact.value) or f" {fact.value}" in fact.sentence


def test_a_distractor_is_easily_mistaken_for_the_fact() -> None:
    facts = Facts(random.Random(3))
    for _ in range(60):
        fact = facts.draw()
        distractor = facts.distractor(fact)
        if fact.subject is None:
            assert distractor.subject is not None
        else:
            assert distractor.relation == fact.relation or distractor.subject == fact.subject


def test_every_relation_states_what_it_is_asked_for() -> None:
    for relation in (*relations_about_subjects(), *standalone_relations()):
        assert all("{value}" in stated for stated in relation.stated)
        assert len({"{subject}" in text for text in (*relation.stated, *relation.asked)}) == 1


def test_inserted_facts_stand_whole_in_their_text(data: Path) -> None:
    texts = [each.text for each in sample_texts(data, characters=10**6)]
    tokenizer = train_tokenizer(texts, vocab_size=500)
    ends, facts = sentence_ends(tokenizer), Facts(random.Random(0))
    between = 0
    for seed in range(30):
        drawn = facts.draw()
        both = [drawn, facts.distractor(drawn)]
        inserted = [tokenize_fact(tokenizer, fact) for fact in both]
        text = np.array(tokenizer(texts[seed % len(texts)], add_special_tokens=False)["input_ids"][:120], np.uint16)
        joined, starts = insert_facts(text, inserted, ends, random.Random(seed))
        assert len(joined) == len(text) + sum(len(fact.ids) for fact in inserted)
        kept = np.ones(len(joined), bool)
        for fact, tokens, start in zip(both, inserted, starts, strict=True):
            assert joined[start : start + len(tokens.ids)].tolist() == list(tokens.ids)
            value = tokenizer.decode(joined[start + tokens.value.start : start + tokens.value.stop].tolist())
            assert fact.value in value
            assert tokenizer.decode(list(tokens.question)) == fact.question
            between += start == 0 or int(joined[start - 1]) in ends
            kept[start : start + len(tokens.ids)] = False
        assert joined[kept].tolist() == text.tolist()
    assert between > 30
