"""What is quoted together with the sentence that announces it."""

from retrieval.query.extend import LONGEST_CONTINUATION, continuation_end

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


def test_of_a_long_list_as_many_items_are_quoted_as_fit():
    text = "These are the items:\n" + "\n".join(f"{n}. item {'x' * 60}" for n in range(1, 40))
    end = continuation_end(text, 0, text.index(":") + 1)
    assert 0.7 * LONGEST_CONTINUATION < end <= LONGEST_CONTINUATION and text[end] == "\n"


def test_indented_lines_belong_to_the_item_above_them():
    text = "There are two:\n\n* Tier 1: many. The\n  Build Group tests it.\n* Tier 2: few.\n  - a branch\n\n  Apart."
    assert text[: continuation_end(text, 0, text.index(":") + 1)].endswith("- a branch")
