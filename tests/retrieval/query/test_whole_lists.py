"""A list is quoted as far as it goes, though search found only its beginning."""

import pytest

from retrieval.query.quotation.announcements import announced_end, goes_on, is_item

ITEMS = [f"• item number {number} of the list" for number in range(6)]
TEXT = "What to pack:\n" + "\n".join(ITEMS) + "\n\nNothing else is needed on the road."


@pytest.mark.parametrize("at", [ITEMS[0], ITEMS[2], ITEMS[5]])
def test_inside_a_list_it_goes_on(at) -> None:
    assert goes_on(TEXT, TEXT.index(at) + 5)


def test_between_two_items_it_goes_on() -> None:
    assert goes_on(TEXT, TEXT.index(ITEMS[3])) and goes_on(TEXT, TEXT.index(ITEMS[3]) - 1)


def test_behind_the_last_item_and_in_prose_it_does_not() -> None:
    assert not goes_on(TEXT, TEXT.index("Nothing")) and not goes_on(TEXT, len(TEXT))
    assert not goes_on("A sentence - with a dash. And another one here.", 20)


def test_two_lists_apart_are_two_lists() -> None:
    text = "• one\n• two\n\n\n\n• three\n• four"
    assert not goes_on(text, text.index("• three") - 2)


def test_a_heading_announces_a_list_of_two_items_or_more() -> None:
    text = "Agenda\n● Welcome\n● News\n\nWho comes is welcome."
    assert text[: announced_end(text, 0, len("Agenda"))] == "Agenda\n● Welcome\n● News"
    single = "Agenda\n● Welcome\n\nWho comes is welcome."
    assert announced_end(single, 0, len("Agenda")) == len("Agenda")
    prose = "It is closed.\n● Welcome\n● News"
    assert announced_end(prose, 0, len("It is closed.")) == len("It is closed."), "a whole sentence announces nothing"
    assert announced_end(text, 7, 16) == 16 and is_item(text[7:16]), "nor does an item"
