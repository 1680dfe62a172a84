"""The small reader of the benchmarks: what it is trained on is what it will be asked.

Axes: T tokens, V vocabulary.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.fixture
def small_reader(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), str(BENCHMARKS / "writers"), *sys.path])
    import small_reader

    return small_reader


def test_an_answer_stands_in_its_passage_and_in_no_other(small_reader: ModuleType) -> None:
    chance = random.Random(0)
    for _ in range(20):
        made = small_reader.made_facts.made_library(chance, pairs=3, facts_each=2)
        assert len(made.passages) == 6 and {question.hops for question in made.questions} == {1, 2}
        for question in made.questions:
            place = made.passages[question.passage]
            values = [one.title for one in made.passages if f"is {question.answer}." in one.text]
            assert values == [place.title] and question.sentence.endswith(f"is {question.answer}.")
            assert question.hops == 1 or place.title not in question.text


def test_questions_that_are_learned_side_by_side_know_nothing_of_each_other(small_reader: ModuleType) -> None:
    torch.manual_seed(0)
    tokenizer = small_reader.word_tokenizer()
    model = small_reader.new_reader(tokenizer, layers=2, width=16).eval()
    made = small_reader.batch(tokenizer, random.Random(3), rows=2)
    row = small_reader.row_of(tokenizer, random.Random(3))
    with torch.no_grad():
        logits_TV = model(
            made.ids_BT,
            position_ids=made.positions_BT,
            attention_mask=small_reader.added_mask(made.visible_BTT),
        ).logits[0]
        for number in (1, 2, max(row.question)):
            alone = [n for n, of in enumerate(row.question) if of in (0, number)]
            alone_TV = model(torch.tensor([[row.ids[n] for n in alone]])).logits[0]
            torch.testing.assert_close(logits_TV[alone], alone_TV, atol=1e-4, rtol=1e-4)
            learned = [row.targets[n] for n in alone if row.targets[n] != small_reader.NOTHING]
            assert [row.ids[n] for n in alone][-len(learned) :] == learned


@pytest.mark.parametrize("two_keys", [False, True])
def test_what_is_learned_of_a_list_was_listed_before_in_another_order(small_reader: ModuleType, two_keys: bool) -> None:
    made = small_reader.listed_facts(100, random.Random(0), rows=3, two_keys=two_keys)
    for ids, targets in zip(made.ids_BT.tolist(), made.targets_BT.tolist(), strict=True):
        facts = [tuple(ids[n : n + 3]) for n in range(0, len(ids), 3)]
        lists = [facts[n : n + small_reader.LISTED] for n in range(0, len(facts), small_reader.LISTED)]
        assert len({frozenset(one) for one in lists}) == 1 and len({tuple(one) for one in lists}) > 1
        learned = [n for n, target in enumerate(targets) if target != small_reader.NOTHING]
        assert min(learned) >= 3 * small_reader.LISTED and all(targets[n] == ids[n + 1] for n in learned)
        for key in (0, 1):
            alone = len({fact[key] for fact in facts}) == small_reader.LISTED
            assert alone is not two_keys


def test_the_first_heads_look_one_to_four_tokens_back(small_reader: ModuleType) -> None:
    torch.manual_seed(0)
    model = small_reader.new_reader(small_reader.word_tokenizer(), layers=2, width=128)
    ids = torch.randint(7, 180, (1, 60))
    attention_HTT = model(ids, output_attentions=True).attentions[0][0]
    for head, back in enumerate((1, 2, 3, 4)):
        assert attention_HTT[head].diagonal(-back).mean() > 0.9
