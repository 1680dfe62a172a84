"""Boilerplate of a document, and what is quoted together with the sentence that introduces it."""

import pytest

from retrieval.query.extend import LONGEST_CONTINUATION, continuation_end
from retrieval.suggestions.questions import Boilerplate

PAPER = """Method

We measured the dam in 1990, as others did (Ash, 1980).

Region\tPrice, EUR
Region: North; Price, EUR: 41.50.

License

Authors of papers retain copyright and release the work under a Creative Commons Attribution 4.0 International License.

References

Ash, B. (1980). Dams of the north. Journal of Dams, 4.

Bell, C., et al. (1985). Water. https://example.org/water

Appendix A

The gauge was built in 1991."""


@pytest.mark.parametrize(
    ("words", "beside"),
    [
        ("We measured", False),
        ("Region\t", True),
        ("Region: North", False),
        ("Authors of papers", True),
        ("References", True),
        ("Ash, B.", True),
        ("Bell, C.", True),
        ("Appendix A", False),
        ("The gauge", False),
    ],
)
def test_references_licences_and_names_of_columns_are_beside_the_matter(words, beside):
    assert (PAPER.index(words) in Boilerplate(PAPER)) == beside


def test_a_chapter_called_references_that_cites_nothing_is_matter():
    text = "References\n\nAsk former employers to write to us.\n\nThey answer within a week, as a rule."
    assert text.index("Ask") not in Boilerplate(text)


def test_lines_that_stand_on_page_after_page_are_beside_the_matter():
    pages = "\n\n".join(
        f"Report on dams, page {page}\n\nThe dam number {page} {word}." for page, word in enumerate("abcde")
    )
    boilerplate = Boilerplate(pages)
    assert pages.index("Report on dams, page 3") in boilerplate and pages.index("The dam number 3") not in boilerplate


def test_a_text_full_of_openings_takes_no_longer_than_its_length():
    Boilerplate("References\n\n" * 2000 + "a\t" * 20_000 + "A-" * 20_000 + "[" * 20_000)


LIST = """Use the following tools:
• a hammer
• a saw that
is sharp

• a file

Nothing else is needed: really."""


def test_a_sentence_that_announces_a_list_is_quoted_with_its_items():
    stop = LIST.index(":") + 1
    assert LIST[: continuation_end(LIST, 0, stop)].endswith("• a file")
    assert LIST[: continuation_end(LIST, 0, stop, limit=LIST.index("• a file"))].endswith("is sharp")
    other = LIST.index("Nothing")
    assert continuation_end(LIST, other, len(LIST)) == len(LIST)


def test_a_caption_is_quoted_with_the_rows_below_it():
    rows = "Region: North; Price: 41.\nRegion: South; Price: 39."
    text = f"Table 2. Prices of grain.\n\nRegion\tPrice\n{rows}\n\nA new matter."
    assert text[: continuation_end(text, 0, text.index("\n"))].endswith("Price: 39.")
    assert continuation_end("Table 2. Prices of grain.\n\nA new matter.", 0, 25) == 25


def test_of_a_long_list_as_many_items_are_quoted_as_fit():
    text = "These are the items:\n" + "\n".join(f"{n}. item {'x' * 60}" for n in range(1, 40))
    end = continuation_end(text, 0, text.index(":") + 1)
    assert 0.7 * LONGEST_CONTINUATION < end <= LONGEST_CONTINUATION and text[end] == "\n"


def test_indented_lines_belong_to_the_item_above_them():
    text = "There are two:\n\n* Tier 1: many. The\n  Build Group tests it.\n* Tier 2: few.\n  - a branch\n\n  Apart."
    assert text[: continuation_end(text, 0, text.index(":") + 1)].endswith("- a branch")
