"""Made sets: what can be known of them, and that the words for them stand for texts."""

import pytest

from research.train.evaluation.passkey import first_integer
from research.train.paper.made_sets import MADE_SETS


@pytest.mark.parametrize("name", MADE_SETS)
def test_every_word_of_a_made_set_is_a_token_and_the_same_seed_gives_the_same(name: str) -> None:
    made = MADE_SETS[name]
    tokenizer, texts = made.tokenizer(), list(made.heldout(2, 240))
    assert texts == list(made.heldout(2, 240)) and texts[0] != texts[1]
    assert next(made.train(1)) != texts[0]
    ids = tokenizer(texts[0])["input_ids"]
    assert tokenizer.eos_token_id not in ids
    if name != "passkey":
        assert len(ids) == 240


def test_a_passkey_text_ends_with_its_key() -> None:
    for text in MADE_SETS["passkey"].heldout(4, 60):
        question, answer = text.rsplit("The pass key is", 1)
        assert first_integer(question.split("The pass key is")[1]) == first_integer(answer)
