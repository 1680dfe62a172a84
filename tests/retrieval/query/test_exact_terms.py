"""Rare terms of a question, and which texts hold them."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from retrieval.index.terms import asked_terms, crossing_terms, may_be_cut, terms_of
from retrieval.query.search import term_shares, unmatched_share

PLAIN = [terms_of(text) for text in ("The harbour is deep.", "Ships wait in the harbour.", "It opens at six.")] * 4


def test_a_text_that_holds_the_rare_terms_has_the_whole_share():
    texts = [*PLAIN, terms_of("Berth W2D4 is in the harbour.")]
    shares_C = term_shares(asked_terms("What is W2D4 in the harbour?"), texts)
    assert shares_C.tolist() == [0.0] * 12 + [1.0], "the harbour is everywhere, so it says nothing"


def test_terms_are_weighed_by_their_rarity():
    texts = [*PLAIN, *PLAIN, terms_of("The crane lifts."), terms_of("A crane and a winch.")]
    first, second = term_shares(asked_terms("crane and winch"), texts)[-2:].tolist()
    assert 0 < first < 0.5 and second == 1.0


def test_options_numbers_and_parts_of_codes_are_terms():
    assert {"-c", "--keep"} <= terms_of("-c --keep: Keep input files.")
    assert "-c" not in terms_of("built-in c compiler")
    assert {"pr#541", "541", "pr"} <= terms_of("See PR#541.")
    assert {"737-8", "737"} <= terms_of("(Model 737-8)")


def test_without_rare_terms_no_text_gains():
    assert torch.equal(term_shares(asked_terms("Where is it?"), PLAIN), torch.zeros(len(PLAIN)))
    assert torch.equal(term_shares(asked_terms("harbour"), []), torch.zeros(0))


def test_words_that_stand_nowhere_are_counted_without_small_ones():
    assert unmatched_share(frozenset(asked_terms("Which ships wait in the harbours?")), PLAIN) == 0
    assert unmatched_share(frozenset(asked_terms("Do tugboats wait in the harbour in 2025?")), PLAIN) == 0.5
    assert unmatched_share(frozenset(asked_terms("Where is it?")), PLAIN) == 0
    assert unmatched_share(frozenset(asked_terms("How many ships wait in how much of the harbour?")), PLAIN) == 0
    assert unmatched_share(frozenset(asked_terms("harbour")), []) == 1


WORDS = (
    "Ctrl+G",
    "(Ctrl+Page",
    "W2D4",
    "--keep",
    "737-8",
    "harbours",
    "PR#541.",
    "s.r.o.",
    "of",
    "“quay”",
    "x_max,",
    "café",
)


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6), st.data())
def test_no_term_is_lost_where_a_text_is_cut(words: list[str], data: st.DataObject) -> None:
    text = " ".join(words)
    cut = data.draw(st.integers(0, len(text)))
    left, right = text[:cut], text[cut:]
    assert terms_of(text) <= terms_of(left) | terms_of(right) | crossing_terms(left, right)
    asked = asked_terms(text) - terms_of(left) - terms_of(right)
    if asked:  # whoever holds a piece of it knows that it may go on
        assert may_be_cut(left, asked)[1] or may_be_cut(right, asked)[0]


def test_only_a_beginning_or_an_end_of_what_is_asked_for_may_be_cut() -> None:
    assert may_be_cut("Find (Ctrl+", {"ctrl+g"}) == (False, True)
    assert may_be_cut("G): moves to the split.", {"ctrl+g"}) == (True, False)
    assert may_be_cut("Find (Ctrl+ ", {"ctrl+g"}) == (False, False), "a border between words"
    assert may_be_cut("A harbour", {"ctrl+g"}) == (False, False)
    assert crossing_terms("the (Ctrl+", "G): moves") == {"ctrl+g"}
