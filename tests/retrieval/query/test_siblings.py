"""Rows of one table, and what of a question tells them apart."""

from __future__ import annotations

import torch

from retrieval.query.quotation.siblings import sibling_shares

ROWS = [f"{name}; Answer Accuracy: {value}; Sentence Accuracy: 88.9." for name, value in (("T5-A", 1), ("T5-B", 2))]
PROSE = "T5-A and T5-B were trained for a day; accuracy: high."


def test_the_row_that_the_question_names_has_the_whole_share():
    shares_S = sibling_shares("What answer accuracy has T5-B?", [("d", text) for text in [PROSE, *ROWS]])
    assert shares_S.tolist() == [0.0, 0.0, 1.0], "column names stand in every row, and prose has no siblings"


def test_rows_of_other_tables_and_documents_are_no_siblings():
    other = "T5-C; Speed: 3; Memory: 4."
    shares_S = sibling_shares("answer accuracy of T5-B", [("d", ROWS[0]), ("e", ROWS[1]), ("d", other)])
    assert torch.equal(shares_S, torch.zeros(3))


def test_words_in_every_row_or_in_none_tell_nothing():
    rows = [("d", text) for text in ROWS]
    assert sibling_shares("What is the sentence accuracy of GPT?", rows).tolist() == [0.0, 0.0]
    assert sibling_shares("", rows).tolist() == [0.0, 0.0]


def test_the_rarer_word_counts_more():
    names = ["small red pump", "small blue pump", "small green pump", "large green pump"]
    rows = [("d", f"Item: {name}; Price: {number}; Stock: {number}.") for number, name in enumerate(names)]
    red, blue, green, large = sibling_shares("price of the small red pump", rows).tolist()
    assert red == 1.0 and blue == green and 0 < blue < 0.5 and large == 0.0


def test_options_of_a_manual_are_siblings():
    options = ["--keep\nKeep the input file.", "-t, --test\nCheck the file.", "--force\nOverwrite the output file."]
    shares_S = sibling_shares("What does --test do?", [("d", text) for text in [*options, "The test file is small."]])
    assert shares_S.tolist() == [0.0, 1.0, 0.0, 0.0]


def test_with_and_no_tell_rows_apart():
    rows = [
        ("d", f"Install type: {name} desktop; RAM: {ram}; Disk: {ram}.")
        for name, ram in (("No", "1 GB"), ("With", "2 GB"))
    ]
    assert sibling_shares("How much RAM with a desktop?", rows).tolist() == [0.0, 1.0]
    assert sibling_shares("How much RAM if there is no desktop?", rows).tolist() == [1.0, 0.0]
    assert sibling_shares("How much RAM has a desktop?", rows).tolist() == [0.0, 0.0]
