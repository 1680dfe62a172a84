"""Rare terms of a question, and which texts hold them."""

from __future__ import annotations

import torch

from retrieval.index.terms import terms_of
from retrieval.query.exact_terms import term_shares, unmatched_share

PLAIN = [terms_of(text) for text in ("The harbour is deep.", "Ships wait in the harbour.", "It opens at six.")] * 4


def test_a_text_that_holds_the_rare_terms_has_the_whole_share():
    texts = [*PLAIN, terms_of("Berth W2D4 is in the harbour.")]
    shares_C = term_shares("What is W2D4 in the harbour?", texts)
    assert shares_C.tolist() == [0.0] * 12 + [1.0], "the harbour is everywhere, so it says nothing"


def test_terms_are_weighed_by_their_rarity():
    texts = [*PLAIN, *PLAIN, terms_of("The crane lifts."), terms_of("A crane and a winch.")]
    first, second = term_shares("crane and winch", texts)[-2:].tolist()
    assert 0 < first < 0.5 and second == 1.0


def test_options_numbers_and_parts_of_codes_are_terms():
    assert {"-c", "--keep"} <= terms_of("-c --keep: Keep input files.")
    assert "-c" not in terms_of("built-in c compiler")
    assert {"pr#541", "541", "pr"} <= terms_of("See PR#541.")
    assert {"737-8", "737"} <= terms_of("(Model 737-8)")


def test_without_rare_terms_no_text_gains():
    assert torch.equal(term_shares("Where is it?", PLAIN), torch.zeros(len(PLAIN)))
    assert torch.equal(term_shares("harbour", []), torch.zeros(0))


def test_words_that_stand_nowhere_are_counted_without_small_ones():
    assert unmatched_share("Which ships wait in the harbours?", PLAIN) == 0
    assert unmatched_share("Do tugboats wait in the harbour in 2025?", PLAIN) == 0.5
    assert unmatched_share("Where is it?", PLAIN) == 0
    assert unmatched_share("How many ships wait in how much of the harbour?", PLAIN) == 0
    assert unmatched_share("harbour", []) == 1
