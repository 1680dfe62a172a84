"""Accounts, and who may read which rows."""

from dataclasses import replace

import pytest

from storage import Catalogue, NameTaken, NotFound
from tests.storage.stored import FINGERPRINT, new_document


@pytest.fixture
def people(catalogue: Catalogue) -> dict[str, str]:
    catalogue.put_fingerprint(FINGERPRINT)
    return {name: catalogue.add_user(name, f"hash of {name}").id for name in ("ann", "ben", "cy")}


def add(catalogue, owner_id=None, collection_id=None, seed=0):
    new = replace(new_document(seed, collection_id=collection_id), owner_id=owner_id)
    return catalogue.add_document(new).document.id


def seen(catalogue, reader):
    return {document.id for document in catalogue.documents(reader=reader)}


def test_accounts_are_kept_by_name(catalogue, people):
    assert [user.name for user in catalogue.users()] == ["ann", "ben", "cy"] and catalogue.has_users()
    assert catalogue.user_named("ben").password_hash == "hash of ben"
    assert "hash" not in repr(catalogue.user_named("ben"))
    with pytest.raises(NameTaken):
        catalogue.add_user("ann", "x")
    with pytest.raises(NotFound):
        catalogue.user_named("dan")


def test_a_new_token_ends_the_old_one(catalogue, people):
    catalogue.set_token_digest(people["ann"], "one")
    assert catalogue.user_of_token("one").name == "ann" and catalogue.user(people["ann"]).has_token
    catalogue.set_token_digest(people["ann"], "two")
    assert catalogue.user_of_token("one") is None and catalogue.user_of_token("two").name == "ann"
    catalogue.set_token_digest(people["ann"], None)
    assert catalogue.user_of_token("two") is None and not catalogue.user(people["ann"]).has_token


def test_a_document_is_read_by_its_owner_and_by_whoever_may_read_its_collection(catalogue, people):
    ann, ben, cy = people.values()
    private = add(catalogue, ann, seed=1)
    shelf = catalogue.create_collection("Reports", owner_id=ann)
    shelved = add(catalogue, ann, shelf.id, seed=2)
    common = add(catalogue, seed=3)
    assert seen(catalogue, ann) == {private, shelved, common} == seen(catalogue, None)
    assert seen(catalogue, ben) == {common}
    shared = catalogue.share_collection(shelf.id, everyone=False, readers=[ben])
    assert shared.readers == (ben,) and not shared.everyone
    assert seen(catalogue, ben) == {common, shelved} and seen(catalogue, cy) == {common}
    assert [one.name for one in catalogue.collections(reader=ben)] == ["Reports"]
    assert catalogue.collections(reader=cy) == []
    catalogue.share_collection(shelf.id, everyone=True, readers=[])
    assert seen(catalogue, cy) == {common, shelved}
    catalogue.share_collection(shelf.id, everyone=False, readers=[])
    assert seen(catalogue, ben) == seen(catalogue, cy) == {common}
    assert catalogue.count_documents(reader=ann) == 3 and catalogue.count_documents(reader=ben) == 1
    assert catalogue.readable_document_ids(ben, of=[private, common]) == {common}
    for reader, id_ in ((ben, private), (cy, shelved)):
        with pytest.raises(NotFound):
            catalogue.document(id_, reader=reader)
    with pytest.raises(NotFound):
        catalogue.collection(shelf.id, reader=ben)


def test_sharing_with_somebody_unknown_changes_nothing(catalogue, people):
    shelf = catalogue.create_collection("Reports", owner_id=people["ann"])
    catalogue.share_collection(shelf.id, everyone=False, readers=[people["ben"]])
    with pytest.raises(NotFound):
        catalogue.share_collection(shelf.id, everyone=True, readers=["0" * 32])
    assert catalogue.collection(shelf.id).readers == (people["ben"],)


def test_collections_of_several_people_may_have_one_name(catalogue, people):
    def shelved(seed, name):
        new = replace(new_document(seed), owner_id=people[name])
        return catalogue.add_document(new, collection="Reports").document.collection_id

    first, second = shelved(1, "ann"), shelved(2, "ben")
    common = catalogue.create_collection("Reports")
    assert len({first, second, common.id}) == 3
    assert shelved(3, "ann") == first
    with pytest.raises(NameTaken):
        catalogue.create_collection("Reports")
    with pytest.raises(NameTaken):
        catalogue.create_collection("Reports", owner_id=people["ann"])


def test_the_same_content_of_two_people_is_two_documents(catalogue, people):
    ids = [add(catalogue, people[name], seed=7) for name in ("ann", "ben")] + [add(catalogue, seed=7)]
    assert len(set(ids)) == 3
    again = catalogue.add_document(replace(new_document(7), owner_id=people["ann"]))
    assert again.already_stored and again.document.id == ids[0]


def test_an_answer_is_seen_by_who_asked_while_its_documents_may_be_read(catalogue, people):
    ann, ben, cy = people.values()
    shelf = catalogue.create_collection("Reports", owner_id=ann)
    shelved = add(catalogue, ann, shelf.id)
    catalogue.share_collection(shelf.id, everyone=False, readers=[ben, cy])
    answer = catalogue.save_answer(question="q", text="a", body="{}", document_ids=[shelved], owner_id=ben)
    assert [head.id for head in catalogue.answers(reader=ben)] == [answer.id] == [h.id for h in catalogue.answers()]
    assert catalogue.answers(reader=ann) == catalogue.answers(reader=cy) == []
    catalogue.share_collection(shelf.id, everyone=False, readers=[cy])
    assert catalogue.answers(reader=ben) == []
    with pytest.raises(NotFound):
        catalogue.answer(answer.id, reader=ben)
    assert catalogue.totals(reader=cy).num_answers == 0


def test_a_conversation_is_not_gone_on_with_by_another(catalogue, people):
    catalogue.ensure_conversation("c1", "Talk", owner_id=people["ann"])
    catalogue.ensure_conversation("c1", "Talk", owner_id=people["ann"])
    assert catalogue.conversation_owner("c1") == people["ann"]
    with pytest.raises(NotFound):
        catalogue.ensure_conversation("c1", "Talk", owner_id=people["ben"])


def test_jobs_are_those_of_the_owners_documents(catalogue, people):
    mine = add(catalogue, people["ann"], seed=1)
    add(catalogue, people["ben"], seed=2)
    assert [job.document_id for job in catalogue.jobs(owner_id=people["ann"])] == [mine]
    assert len(catalogue.jobs()) == 2 and catalogue.jobs(owner_id=people["cy"]) == []


def test_what_had_no_owner_belongs_to_the_owner_of_the_collection_that_it_is_put_into(catalogue, people):
    shelf = catalogue.create_collection("Reports", owner_id=people["ann"])
    document = add(catalogue)
    assert document in seen(catalogue, people["ben"])
    assert catalogue.move_document(document, shelf.id).owner_id == people["ann"]
    catalogue.delete_collection(shelf.id)
    assert document not in seen(catalogue, people["ben"])


def test_all_that_nobody_owned_can_be_given_to_a_user(catalogue, people):
    catalogue.create_collection("Reports", owner_id=people["ann"])
    common = catalogue.create_collection("Reports")
    document = add(catalogue, collection_id=common.id)
    answer = catalogue.save_answer(question="q", text="a", body="{}", document_ids=[document])
    assert catalogue.give(people["ann"], None) == 1
    assert document in seen(catalogue, people["ann"]) and document not in seen(catalogue, people["ben"])
    assert [one.name for one in catalogue.collections(reader=people["ann"])] == ["Reports", "Reports (2)"]
    assert [head.id for head in catalogue.answers(reader=people["ann"])] == [answer.id]


def test_an_account_goes_with_its_answers_and_its_shares_once_its_documents_are_given_away(catalogue, people):
    ann, ben, cy = people.values()
    shelf = catalogue.create_collection("Reports", owner_id=ann)
    document = add(catalogue, ann, shelf.id)
    catalogue.share_collection(shelf.id, everyone=False, readers=[ben, cy])
    catalogue.save_answer(question="q", text="a", body="{}", document_ids=[document], owner_id=ann)
    with pytest.raises(ValueError, match="owns documents"):
        catalogue.delete_user(ann)
    assert catalogue.give(ben, ann) == 1
    catalogue.delete_user(ann)
    assert [user.name for user in catalogue.users()] == ["ben", "cy"] and catalogue.answers() == []
    assert catalogue.document(document, reader=ben).owner_id == ben and document in seen(catalogue, cy)
    catalogue.delete_user(cy)
    assert catalogue.collection(shelf.id).readers == (ben,)
