"""Made sets: what can be known of them, and that the words for them stand for texts."""

from itertools import pairwise

import numpy as np
import pytest

from research.train.evaluation.passkey import first_integer
from research.train.paper.made_genome import CODONS, GENE_CODONS, GENES, genome_tokenizer, made_genomes
from research.train.paper.made_recall import KEYS, VALUES, answers, made_recall, recall_tokenizer
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


def test_a_key_keeps_its_value_within_a_text_and_answers_are_those_known() -> None:
    first, second = made_recall(2, seed=3, tokens=2048)
    values: dict[str, str] = {}
    for key, value in pairwise(first.split()):
        if key.startswith("k"):
            assert values.setdefault(key, value) == value
    others = dict(pair for pair in pairwise(second.split()) if pair[0].startswith("k"))
    assert values.keys() == others.keys() and values != others
    tokens = np.array(recall_tokenizer()(first)["input_ids"])
    asked = answers(tokens)
    assert asked.sum() == len(tokens) // 2 - KEYS and not asked[::2].any()
    assert len(recall_tokenizer()) == KEYS + VALUES + 1
    assert answers(np.array([3, KEYS, 3, KEYS, 4, KEYS + 1, 3, KEYS])).nonzero()[0].tolist() == [3, 7]
    assert not answers(tokens[1:])[:2].any(), "a value without its key is no answer"


def test_genes_come_again_and_most_of_their_codons_with_them() -> None:
    (genome,) = made_genomes(1, seed=5, codons=4096)
    tokens = np.array(genome_tokenizer()(genome)["input_ids"])
    assert set(genome.split()) == set(CODONS)
    known: dict[tuple[int, int], int] = {}
    seen = right = 0
    for first, second, third in zip(tokens, tokens[1:], tokens[2:], strict=False):
        pair = (int(first), int(second))
        if pair in known:
            seen, right = seen + 1, right + (known[pair] == third)
        known[pair] = int(third)
    share = GENE_CODONS / (GENE_CODONS + 6)
    assert seen / len(tokens) > 0.5 * share, "two codons tell where in a gene one is"
    assert right / seen > 0.7, "and then how it goes on"
    assert GENES * (GENE_CODONS + 6) > 2 * 64, "a copy lies further back than a window of 64, as a rule"


def test_a_passkey_text_ends_with_its_key() -> None:
    for text in MADE_SETS["passkey"].heldout(4, 60):
        question, answer = text.rsplit("The pass key is", 1)
        assert first_integer(question.split("The pass key is")[1]) == first_integer(answer)
