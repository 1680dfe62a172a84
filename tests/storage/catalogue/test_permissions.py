"""Deny by default: whatever the catalogue can do is the administrator's alone, unless it is named here."""

from __future__ import annotations

import inspect

import pytest

from storage.catalogue import Catalogue
from storage.errors import NotFound, PermissionDenied
from storage.records import ADMINISTRATOR, Principal
from tests.storage.stored import add_ready, new_document

FOR_ANY_PRINCIPAL = {
    *("add_document", "document", "documents", "document_ids", "find_document", "rename_document", "move_document"),
    *("names", "document_and_first_block"),
    *("delete_documents", "extracted_text", "extras", "pages", "blocks_by_id", "blocks_of_document", "totals"),
    *("blocks_with_terms", "count_terms", "documents_with_terms"),
    *("collection", "collections", "create_collection", "rename_collection", "share_collection", "delete_collection"),
    *("job", "jobs", "num_active_jobs", "cancel_job", "retry_job"),
    *("answer", "answers", "save_answer", "delete_answer", "ensure_conversation"),
    *("title_keys", "put_title_keys", "users", "user_named", "own_groups", "access"),
    *("put_fingerprint", "give_unread", "fingerprints"),
    *("add_imported", "properties_of", "set_properties", "documents_where"),
}
METHODS = [name for name, _ in inspect.getmembers(Catalogue, inspect.isfunction) if not name.startswith("_")]


@pytest.mark.sqlite_only  # refused before any database is asked
@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_user_may_call_only_what_applies_the_permission_rule(catalogue, name):
    method = getattr(catalogue.acting_for(Principal("0" * 32, "ann")), name)
    if name in FOR_ANY_PRINCIPAL:
        assert hasattr(method, "_for_any_principal")
    else:
        with pytest.raises(PermissionDenied):
            method()


def test_a_user_reaches_neither_the_database_nor_the_administrators_catalogue(catalogue):
    user = catalogue.acting_for(Principal("0" * 32, "ann"))
    with pytest.raises(PermissionDenied):
        _ = user.database
    with pytest.raises(PermissionDenied):
        user.acting_for(ADMINISTRATOR)
    assert catalogue.acting_for(ADMINISTRATOR).principal.is_administrator


def test_a_new_method_of_a_repository_is_the_administrators(catalogue):
    class Extended(Catalogue):
        def count_everything(self) -> int:
            return 1

    assert Extended(catalogue.database, ADMINISTRATOR).count_everything() == 1
    with pytest.raises(PermissionDenied):
        Extended(catalogue.database, Principal("0" * 32)).count_everything()


def test_what_another_owns_is_not_found_and_what_is_shared_can_only_be_read(home):
    catalogue, store = home
    ann, ben = (Principal(catalogue.add_user(name, "hash").id, name) for name in ("ann", "ben"))
    as_ann, as_ben = catalogue.acting_for(ann), catalogue.acting_for(ben)
    document = as_ann.add_document(new_document(1), collection="Reports").document
    document = catalogue.save_extracted(document.id, text="x" * 60, pages_read=[])
    mine = as_ben.add_document(new_document(2)).document
    block_ids = [block.id for block in catalogue.blocks_of_document(add_ready(catalogue, store, 3).id)]
    reports = as_ann.collections()[0]

    def changes():
        return (
            lambda: as_ben.rename_document(document.id, "x"),
            lambda: as_ben.move_document(document.id, None),
            lambda: as_ben.move_document(mine.id, reports.id),
            lambda: as_ben.put_title_keys(document.id, "x", b""),
            lambda: as_ben.rename_collection(reports.id, "x"),
            lambda: as_ben.share_collection(reports.id, everyone=True, readers=[]),
            lambda: as_ben.delete_collection(reports.id),
        )

    for change in (*changes(), lambda: as_ben.document(document.id), lambda: as_ben.extracted_text(document.id)):
        with pytest.raises(NotFound):
            change()
    assert as_ben.delete_documents([document.id]).document_ids == () and catalogue.document(document.id) == document
    assert as_ben.blocks_by_id(block_ids).keys() == set(block_ids), "nobody's document is everyone's to read"

    as_ann.share_collection(reports.id, everyone=False, readers=[ben.user_id])
    assert as_ben.document(document.id) == document and as_ben.extracted_text(document.id).text == "x" * 60
    for change in (*changes(), lambda: as_ben.delete_documents([mine.id, document.id])):
        with pytest.raises(PermissionDenied):
            change()
    assert as_ben.document(mine.id) == mine, "a deletion that is refused deletes nothing"


def test_blocks_pages_and_title_keys_are_those_of_readable_documents(home):
    catalogue, store = home
    ann, ben = (catalogue.add_user(name, "hash").id for name in ("ann", "ben"))
    document = add_ready(catalogue, store, 1)
    catalogue.put_title_keys(document.id, document.title, b"keys")
    ids = [block.id for block in catalogue.blocks_of_document(document.id)]
    catalogue.transfer_ownership(ann, None)
    for user_id, readable in ((ann, True), (ben, False)):
        seen = catalogue.acting_for(Principal(user_id))
        assert bool(seen.blocks_by_id(ids)) == bool(seen.blocks_of_document(document.id)) == readable
        if readable:
            assert seen.document_and_first_block(document.id) == (catalogue.document(document.id), min(ids))
        else:
            with pytest.raises(NotFound):
                seen.document_and_first_block(document.id)
        assert bool(seen.pages(document.id)) == bool(seen.title_keys([document.id])) == readable
        totals = seen.totals()
        assert (totals.num_documents, totals.num_shards, totals.num_blocks) == ((1, 2, 6) if readable else (0, 0, 0))
