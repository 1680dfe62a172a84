"""Labels that passages carry, and citations translated while they are written."""

from __future__ import annotations

import pytest

from retrieval.writers.citations import CitationStream, labels_of, with_labels


def test_a_body_keeps_its_label_in_any_company_and_no_two_have_the_same() -> None:
    bodies = [f"passage {number}" for number in range(300)]
    labels = labels_of(bodies)
    assert len(set(labels)) == 300
    assert all(100 <= label <= 999 for label in labels)
    assert labels_of(bodies[7:8]) == labels_of([bodies[7], bodies[3]])[:1]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("Green [417].", "Green [1]."),
        ("Green [417, 233].", "Green [1][2]."),
        ("Green [417][233]", "Green [1][2]"),
        ("Green [ 4 1 7 ]", "Green [ 4 1 7 ]"),
        ("Green [555].", "Green ."),
        ("Twice [417; 417]", "Twice [1]"),
        ("a[i] = b[j, 2]", "a[i] = b[j, 2]"),
        ("[not a citation, but a long remark in brackets that goes on] [233]", None),
        ("open [", "open ["),
        ("[[417]]", "[[1]]"),
    ],
)
def test_citations_are_translated_wherever_the_stream_is_cut(written: str, shown: str | None) -> None:
    expected = shown if shown is not None else written.replace("[233]", "[2]")
    for size in (1, 2, 3, 100):
        stream = CitationStream({417: 1, 233: 2})
        pieces = [stream.add(written[at : at + size]) for at in range(0, len(written), size)]
        assert "".join(pieces) + stream.flush() == expected


def test_examples_in_an_instruction_are_labels_of_the_passages() -> None:
    assert with_labels("like [1] or [2][3].", {417: 1, 233: 2}) == "like [417] or [233][3]."
