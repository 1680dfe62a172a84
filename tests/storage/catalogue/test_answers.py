import json

import pytest

from storage.errors import NotFound
from tests.storage.stored import add_ready


def test_an_answer_is_reopened_exactly_as_it_was_given(home):
    catalogue, store = home
    document = add_ready(catalogue, store)
    catalogue.ensure_conversation("c1", "About reports")
    body = json.dumps({"tokens": [["Yes", -0.1]], "heat": {"3": [[0.5]]}, "text": "Ja — ✓"}, ensure_ascii=False)
    head = catalogue.save_answer(
        question="Is it?", text="Yes", body=body, document_ids=[document.id], conversation_id="c1"
    )
    stored = catalogue.answer(head.id)
    assert stored.body == body
    assert stored.document_ids == (document.id,)
    assert (stored.question, stored.text, stored.conversation_id) == ("Is it?", "Yes", "c1")


def test_answers_are_listed_newest_first_and_found_by_every_word(catalogue):
    first = catalogue.save_answer(question="Where is Köln?", text="On the Rhine", body="{}", document_ids=[])
    second = catalogue.save_answer(question="Where is Rome?", text="In Italy", body="{}", document_ids=[])
    assert catalogue.answers() == [second, first]
    assert catalogue.answers(limit=1) == [second]
    assert catalogue.answers(search="KÖLN rhine") == [first]
    assert catalogue.answers(search="köln italy") == []


def test_answers_are_listed_by_conversation_and_deleted_one_by_one(catalogue):
    named = "c1" * 32  # any id of the caller's
    catalogue.ensure_conversation(named, "A")
    mine = catalogue.save_answer(question="q", text="a", body="{}", document_ids=[], conversation_id=named)
    other = catalogue.save_answer(question="q", text="a", body="{}", document_ids=[])
    assert catalogue.answers(conversation_id=named) == [mine] and catalogue.answers(conversation_id="new") == []
    catalogue.delete_answer(mine.id)
    assert catalogue.answers() == [other]
    catalogue.delete_answer(other.id)
    assert catalogue.answers() == []


def test_an_answer_from_a_document_that_is_gone_is_not_kept(home):
    """Otherwise a deletion during a question would leave the document's words behind."""
    catalogue, store = home
    document = add_ready(catalogue, store)
    catalogue.delete_documents([document.id])
    with pytest.raises(NotFound, match="document"):
        catalogue.save_answer(question="q", text="its words", body="{}", document_ids=[document.id])
    assert catalogue.answers() == []


@pytest.mark.parametrize("call", ["answer", "delete_answer"])
def test_what_is_not_there_is_said(catalogue, call):
    with pytest.raises(NotFound, match="nothing"):
        getattr(catalogue, call)("nothing")
    with pytest.raises((NotFound, ValueError)):
        getattr(catalogue, call)("no\0thing")
