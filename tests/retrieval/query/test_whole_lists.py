"""A list is quoted as far as it goes, though search found only its beginning."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from retrieval.query.extend import continuation_end, goes_on, is_item
from retrieval.query.retrieve import Candidates, Retrieved
from retrieval.query.whole_lists import with_whole_lists

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
    assert text[: continuation_end(text, 0, len("Agenda"))] == "Agenda\n● Welcome\n● News"
    single = "Agenda\n● Welcome\n\nWho comes is welcome."
    assert continuation_end(single, 0, len("Agenda")) == len("Agenda")
    prose = "It is closed.\n● Welcome\n● News"
    assert continuation_end(prose, 0, len("It is closed.")) == len("It is closed."), (
        "a whole sentence announces nothing"
    )
    assert continuation_end(text, 7, 16) == 16 and is_item(text[7:16]), "nor does an item"


def snapshot_of(ordinals, documents):
    blocks = SimpleNamespace(ids_N=np.arange(100, 100 + len(ordinals)))
    return SimpleNamespace(
        blocks=blocks, document_N=np.array(documents), ordinal_N=np.array(ordinals), num_blocks=len(ordinals)
    )


def followed(text, *, best, documents, found=(1,)):
    """Positions of the candidates once lists are followed; blocks of 20 characters."""
    ordinals = [documents[:n].count(each) for n, each in enumerate(documents)]
    catalogue = SimpleNamespace(
        blocks_by_id=lambda ids: {
            id_: SimpleNamespace(document_id="d", end=20 * (ordinals[id_ - 100] + 1)) for id_ in ids
        }
    )
    passages = SimpleNamespace(text=lambda _: text, blocks=catalogue.blocks_by_id)
    indices_C = torch.tensor(found)
    candidates = Candidates(snapshot_of(ordinals, documents), indices_C, torch.ones(len(found)) > 0, best)
    retrieved = Retrieved("?", "?", None, candidates, True, True, True, False, 0.0)
    return with_whole_lists(passages, retrieved).candidates


def test_the_blocks_that_a_list_goes_on_in_are_read_too() -> None:
    more = followed(TEXT, best=[0], documents=[0] * 9)
    assert more.indices_C.tolist() == [1, 2, 3, 4], "at most three further"
    assert more.quotable_C.all() and more.rank_C == [0, 0, 0, 0]


def test_of_another_document_or_behind_the_list_nothing_is_read() -> None:
    assert followed(TEXT, best=[0], documents=[0, 0, 1, 1]).indices_C.tolist() == [1]
    assert followed("A sentence of prose. " * 9, best=[0], documents=[0] * 9).indices_C.tolist() == [1]
    assert followed(TEXT, best=[5], documents=[0] * 9).indices_C.tolist() == [1], "only near the best"


def test_a_run_of_candidates_is_followed_from_its_end() -> None:
    assert followed(TEXT, best=[0, 9, 9], found=(1, 2, 3), documents=[0] * 9).indices_C.tolist() == [1, 2, 3, 4, 5, 6]
