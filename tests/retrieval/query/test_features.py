"""What features say of sentences: rows of one table told apart, and codes of the question."""

from __future__ import annotations

import torch
from torch import Tensor

from retrieval.query.features import Asked, Sentences, code_match, row_overlap
from retrieval.query.sentences import Sentence

ROWS = [f"{name}; Answer Accuracy: {value}; Sentence Accuracy: 88.9." for name, value in (("T5-A", 1), ("T5-B", 2))]
PROSE = "T5-A and T5-B were trained for a day; accuracy: high."


def made(question: str, rows: list[tuple[str, str]]) -> Sentences:
    """Sentences of (document, text)."""
    items = [Sentence([(n, 0)], text, n, 0, len(text), [len(text)], [], [], False) for n, (_, text) in enumerate(rows)]
    return Sentences(Asked(question), items, [document for document, _ in rows], torch.zeros(len(rows)))


def overlap(question: str, rows: list[tuple[str, str]]) -> Tensor:
    return row_overlap(made(question, rows))


def codes(question: str, texts: list[str]) -> Tensor:
    return code_match(made(question, [("d", text) for text in texts]))


def test_the_row_that_the_question_names_has_the_whole_share():
    shares_S = overlap("What answer accuracy has T5-B?", [("d", text) for text in [PROSE, *ROWS]])
    assert shares_S.tolist() == [0.0, 0.0, 1.0], "column names stand in every row, and prose has no siblings"


def test_rows_of_other_tables_and_documents_are_no_siblings():
    other = "T5-C; Speed: 3; Memory: 4."
    shares_S = overlap("answer accuracy of T5-B", [("d", ROWS[0]), ("e", ROWS[1]), ("d", other)])
    assert torch.equal(shares_S, torch.zeros(3))


def test_words_in_every_row_or_in_none_tell_nothing():
    rows = [("d", text) for text in ROWS]
    assert overlap("What is the sentence accuracy of GPT?", rows).tolist() == [0.0, 0.0]
    assert overlap("", rows).tolist() == [0.0, 0.0]


def test_the_rarer_word_counts_more():
    names = ["small red pump", "small blue pump", "small green pump", "large green pump"]
    rows = [("d", f"Item: {name}; Price: {number}; Stock: {number}.") for number, name in enumerate(names)]
    red, blue, green, large = overlap("price of the small red pump", rows).tolist()
    assert red == 1.0 and blue == green and 0 < blue < 0.5 and large == 0.0


def test_options_of_a_manual_are_siblings():
    options = ["--keep\nKeep the input file.", "-t, --test\nCheck the file.", "--force\nOverwrite the output file."]
    shares_S = overlap("What does --test do?", [("d", text) for text in [*options, "The test file is small."]])
    assert shares_S.tolist() == [0.0, 1.0, 0.0, 0.0]


def test_with_and_no_tell_rows_apart():
    rows = [
        ("d", f"Install type: {name} desktop; RAM: {ram}; Disk: {ram}.")
        for name, ram in (("No", "1 GB"), ("With", "2 GB"))
    ]
    assert overlap("How much RAM with a desktop?", rows).tolist() == [0.0, 1.0]
    assert overlap("How much RAM if there is no desktop?", rows).tolist() == [1.0, 0.0]
    assert overlap("How much RAM has a desktop?", rows).tolist() == [0.0, 0.0]


def test_sentences_gain_by_codes_of_the_question_that_few_of_them_hold() -> None:
    texts = ["Go to Date (Ctrl+G): Move to a date.", *(f"Item {n} (Ctrl+F): Find." for n in range(19))]
    assert codes("What does Ctrl+G do?", texts).tolist() == [1.0] + [0.0] * 19
    assert codes("What does Ctrl+F do?", texts).sum() == 0, "held by most of them"
    assert codes("Where is item 7, and the date?", texts).sum() == 0, "words and plain numbers are no codes"
    assert codes("Ctrl+G or Ctrl+X?", texts)[0] == 1.0, "what no sentence holds does not count"
    assert codes("Ctrl+G?", []).tolist() == []
