"""Boilerplate of a document."""

import pytest

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
