"""Rare terms of a question, and which texts hold them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.index.terms import asked_terms, crossing_terms, dates_in, terms_of
from retrieval.query.search import share_of_names


def test_options_numbers_and_parts_of_codes_are_terms():
    assert {"-c", "--keep"} <= terms_of("-c --keep: Keep input files.")
    assert "-c" not in terms_of("built-in c compiler")
    assert {"pr#541", "541", "pr"} <= terms_of("See PR#541.")
    assert {"737-8", "737"} <= terms_of("(Model 737-8)")


@pytest.mark.parametrize(
    "text",
    [
        *(
            "5 March 2013",
            "the 5th of March 2013",
            "on March 5, 2013",
            "Mar. 5th 2013",
            "5 MAR 2013",
            "on 5\n  March 2013",
        ),
        *(
            "at 2013-03-05T10:00",
            "date: 2013/03/05; rain",
            "2013/3/5.",
            "2013.03.05",
            "am 5.3.2013.",
            "05. 03. 2013",
            "logs/2013-03-05",
            "２０１３年? ２０１３/０３/０５",
        ),
        *("am 5. März 2013", "le 5 mars 2013", "el 5 de marzo de 2013", "il 5 marzo 2013"),
    ],
)
def test_a_day_is_the_same_however_it_is_written(text):
    assert dates_in(text) == {"2013-03-05", "2013-03"} <= terms_of(text)
    assert not dates_in(text) & asked_terms("5 March 2013"), "words alone stand in a text"


def test_months_need_a_year_and_words_that_begin_like_them_are_none():
    assert dates_in("in Sept. 2009, in may 2010") == {"2009-09", "2010-05"}
    assert not dates_in("Mark 2013 of marches 2013, in March, it may 20 times, 2013-13-01, Mars 2020")


def test_a_day_that_may_be_a_month_and_the_numbers_of_versions_are_no_dates():
    assert not dates_in("5/3/2013, 1.5.3.2013, 5.3.2013.1, v5.3.2013, 2013.3.5.1, 2013-3/5")


def test_the_rarer_a_name_the_more_it_says():
    names = [{"harbour"}, {"harbour"}, {"harbour", "crane"}, set()]
    shares = share_of_names({"harbour", "crane", "winch"}, names).tolist()
    assert shares[3] == 0 and 0 < shares[0] == shares[1] < shares[2] < 1
    assert share_of_names(set(), names).tolist() == [0.0] * 4


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


def test_a_code_that_is_cut_is_a_term_of_both_parts() -> None:
    assert crossing_terms("the (Ctrl+", "G): moves") == {"ctrl+g"}


def test_scripts_without_spaces_have_pairs_of_letters_as_terms() -> None:
    assert asked_terms("商品的数量？ iPhone手机") == {"商品", "品的", "的数", "数量", "iphone", "手机"}
    assert asked_terms("고등교육법에") == {"고등", "등교", "교육", "육법", "법에"}
    assert asked_terms("東京 の高さ") == {"東京", "の高", "高さ"}
    assert asked_terms("山") == {"山"}


def test_pairs_of_letters_cross_the_borders_of_blocks() -> None:
    assert "数量" in crossing_terms("商品的数", "量是三")
