"""Segments cover a document and depend on nothing but its text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from retrieval.writers.passages import segment_at, segments_of


@given(st.text(alphabet="ab .\n", max_size=400), st.integers(2, 50))
def test_segments_cover_the_text_without_gaps_and_none_is_too_long(text: str, length: int) -> None:
    segments = segments_of(text, length)
    assert "".join(text[start:end] for start, end in segments) == text
    assert all(0 < end - start <= length for start, end in segments)
    for position in range(len(text)):
        start, end = segments[segment_at(segments, position)]
        assert start <= position < end


def test_a_segment_ends_at_a_paragraph_then_at_a_sentence_then_at_a_word() -> None:
    assert segments_of("aaaa bbb. cc\n\ndddd ee. f", 20)[0] == (0, 14)
    assert segments_of("aaaa bbb. cccc. dd ee ff gg", 20)[0] == (0, 16)
    assert segments_of("aaaa bbb cccc dd ee ff gg", 20)[0] == (0, 20)
    assert segments_of("a" * 30, 20) == [(0, 20), (20, 30)]
