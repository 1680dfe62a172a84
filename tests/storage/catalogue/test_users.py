"""Accounts, and who may read which rows."""

import pytest

from storage.catalogue import Catalogue
from storage.errors import NameTaken, NotFound
from storage.records import Principal
from tests.storage.stored import FINGERPRINT, new_document


@pytest.fixture
def people(catalogue: Catalogue) -> dict[str, str]:
    catalogue.put_fingerprint(FINGERPRINT)
    return {name: catalogue.add_user(name, f"hash of {name}").id for name in ("ann", "ben", "cy")}


def add(catalogue, owner_id=None, collection=None, seed=0):
    return catalogue.acting_for(Principal(owner_id)).add_document(new_document(seed), collection=collection).document.id


def seen(catalogue, reader):
    documents = {document.id for document in catalogue.acting_for(Principal(reader)).documents()}
    assert catalogue.acting_for(Principal(reader)).document_ids() == documents
    return documents


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
    as_ann, as_ben, as_cy = (catalogue.acting_for(Principal(each)) for each in (ann, ben, cy))
    private = add(catalogue, ann, seed=1)
    collection = as_ann.create_collection("Reports")
    in_collection = add(catalogue, ann, "Reports", seed=2)
    common = add(catalogue, seed=3)
    assert seen(catalogue, ann) == {private, in_collection, common} == seen(catalogue, None)
    assert seen(catalogue, ben) == {common}
    shared = catalogue.share_collection(collection.id, everyone=False, readers=[ben])
    assert shared.readers == (ben,) and not shared.everyone
    assert seen(catalogue, ben) == {common, in_collection} and seen(catalogue, cy) == {common}
    assert [one.name for one in as_ben.collections()] == ["Reports"]
    assert as_cy.collections() == []
    catalogue.share_collection(collection.id, everyone=True, readers=[])
    assert seen(catalogue, cy) == {common, in_collection}
    catalogue.share_collection(collection.id, everyone=False, readers=[])
    assert seen(catalogue, ben) == seen(catalogue, cy) == {common}
    assert len(seen(catalogue, ann)) == 3
    for reader, id_ in ((as_ben, private), (as_cy, in_collection)):
        with pytest.raises(NotFound):
            reader.document(id_)
    with pytest.raises(NotFound):
        as_ben.collection(collection.id)


def test_sharing_with_somebody_unknown_changes_nothing(catalogue, people):
    collection = catalogue.acting_for(Principal(people["ann"])).create_collection("Reports")
    catalogue.share_collection(collection.id, everyone=False, readers=[people["ben"]])
    with pytest.raises(NotFound):
        catalogue.share_collection(collection.id, everyone=True, readers=["0" * 32])
    assert catalogue.collection(collection.id).readers == (people["ben"],)


def test_collections_of_several_people_may_have_one_name(catalogue, people):
    def in_collection(seed, name):
        return catalogue.document(add(catalogue, people[name], "Reports", seed)).collection_id

    first, second = in_collection(1, "ann"), in_collection(2, "ben")
    common = catalogue.create_collection("Reports")
    assert len({first, second, common.id}) == 3
    assert in_collection(3, "ann") == first
    with pytest.raises(NameTaken):
        catalogue.create_collection("Reports")
    with pytest.raises(NameTaken):
        catalogue.acting_for(Principal(people["ann"])).create_collection("Reports")


def test_the_same_content_of_two_people_is_two_documents(catalogue, people):
    ids = [add(catalogue, people[name], seed=7) for name in ("ann", "ben")] + [add(catalogue, seed=7)]
    assert len(set(ids)) == 3
    again = catalogue.acting_for(Principal(people["ann"])).add_document(new_document(7))
    assert again.already_stored and again.document.id == ids[0]


def test_an_answer_is_seen_by_who_asked_while_its_documents_may_be_read(catalogue, people):
    ann, ben, cy = people.values()
    as_ann, as_ben, as_cy = (catalogue.acting_for(Principal(each)) for each in (ann, ben, cy))
    collection = as_ann.create_collection("Reports")
    in_collection = add(catalogue, ann, "Reports")
    catalogue.share_collection(collection.id, everyone=False, readers=[ben, cy])
    answer = as_ben.save_answer(question="q", text="a", body="{}", document_ids=[in_collection])
    assert [head.id for head in as_ben.answers()] == [answer.id] == [h.id for h in catalogue.answers()]
    assert as_ann.answers() == as_cy.answers() == []
    catalogue.share_collection(collection.id, everyone=False, readers=[cy])
    assert as_ben.answers() == []
    with pytest.raises(NotFound):
        as_ben.answer(answer.id)
    assert as_cy.totals().num_answers == 0


def test_a_conversation_is_not_gone_on_with_by_another(catalogue, people):
    as_ann, as_ben = (catalogue.acting_for(Principal(people[name])) for name in ("ann", "ben"))
    as_ann.ensure_conversation("c1", "Talk")
    as_ann.ensure_conversation("c1", "Talk")
    assert as_ann.answers(conversation_id="c1") == []
    for look in (lambda: as_ben.ensure_conversation("c1", "Talk"), lambda: as_ben.answers(conversation_id="c1")):
        with pytest.raises(NotFound):
            look()


def test_jobs_are_those_of_the_owners_documents(catalogue, people):
    mine = add(catalogue, people["ann"], seed=1)
    add(catalogue, people["ben"], seed=2)
    as_ann, as_cy = (catalogue.acting_for(Principal(people[name])) for name in ("ann", "cy"))
    assert [job.document_id for job in as_ann.jobs()] == [mine]
    assert len(catalogue.jobs()) == 2 and as_cy.jobs() == []


def test_what_had_no_owner_belongs_to_the_owner_of_the_collection_that_it_is_put_into(catalogue, people):
    collection = catalogue.acting_for(Principal(people["ann"])).create_collection("Reports")
    document = add(catalogue)
    assert document in seen(catalogue, people["ben"])
    assert catalogue.move_document(document, collection.id).owner_id == people["ann"]
    catalogue.delete_collection(collection.id)
    assert document not in seen(catalogue, people["ben"])


def test_all_that_nobody_owned_can_be_given_to_a_user(catalogue, people):
    catalogue.acting_for(Principal(people["ann"])).create_collection("Reports")
    catalogue.create_collection("Reports")
    document = add(catalogue, collection="Reports")
    answer = catalogue.save_answer(question="q", text="a", body="{}", document_ids=[document])
    assert catalogue.transfer_ownership(people["ann"], None) == 1
    assert document in seen(catalogue, people["ann"]) and document not in seen(catalogue, people["ben"])
    as_ann = catalogue.acting_for(Principal(people["ann"]))
    assert [one.name for one in as_ann.collections()] == ["Reports", "Reports (2)"]
    assert [head.id for head in as_ann.answers()] == [answer.id]


def test_an_account_goes_with_its_answers_and_its_shares_once_its_documents_are_given_away(catalogue, people):
    ann, ben, cy = people.values()
    as_ann, as_ben = (catalogue.acting_for(Principal(each)) for each in (ann, ben))
    collection = as_ann.create_collection("Reports")
    document = add(catalogue, ann, "Reports")
    catalogue.share_collection(collection.id, everyone=False, readers=[ben, cy])
    as_ann.save_answer(question="q", text="a", body="{}", document_ids=[document])
    with pytest.raises(ValueError, match="owns documents"):
        catalogue.delete_user(ann)
    assert catalogue.transfer_ownership(ben, ann) == 1
    catalogue.delete_user(ann)
    assert [user.name for user in catalogue.users()] == ["ben", "cy"] and catalogue.answers() == []
    assert as_ben.document(document).owner_id == ben and document in seen(catalogue, cy)
    catalogue.delete_user(cy)
    assert catalogue.collection(collection.id).readers == (ben,)


def test_an_identity_belongs_to_one_account(catalogue, people):
    catalogue.set_identity(people["ann"], "https://id.example", "1")
    assert catalogue.user_of_identity("https://id.example", "1").name == "ann"
    assert catalogue.user_of_identity("https://other.example", "1") is None
    with pytest.raises(NameTaken):
        catalogue.set_identity(people["ben"], "https://id.example", "1")
    with pytest.raises(NameTaken):
        catalogue.add_user("dan", "", issuer="https://id.example", subject="1")
    catalogue.set_identity(people["ann"], None, None)
    assert catalogue.user_of_identity("https://id.example", "1") is None
    catalogue.set_identity(people["ben"], None, None)  # several have none


def test_a_collection_is_read_by_members_of_its_groups_while_they_are_members(catalogue, people):
    ann, ben, cy = people.values()
    as_ann = catalogue.acting_for(Principal(ann))
    collection = as_ann.create_collection("Reports")
    document = add(catalogue, ann, "Reports", seed=1)
    catalogue.set_groups(ann, ["water", "all"])
    catalogue.set_groups(ben, ["water"])
    assert as_ann.share_collection(collection.id, everyone=False, readers=[cy], groups=["water"]).groups == ("water",)
    assert seen(catalogue, ben) == seen(catalogue, cy) == {document}
    catalogue.set_groups(ben, ["legal"])
    assert seen(catalogue, ben) == set() and seen(catalogue, cy) == {document}
    as_ann.share_collection(collection.id, everyone=False, readers=[])
    assert seen(catalogue, cy) == set() and catalogue.collection(collection.id).groups == ()


def test_people_name_their_own_groups_only_and_may_keep_what_was_shared(catalogue, people):
    ann, ben, _ = people.values()
    as_ann = catalogue.acting_for(Principal(ann))
    collection = as_ann.create_collection("Reports")
    catalogue.set_groups(ann, ["water"])
    catalogue.set_groups(ben, ["legal"])
    assert as_ann.own_groups() == ["water"] and catalogue.own_groups() == ["legal", "water"]
    with pytest.raises(NotFound):
        as_ann.share_collection(collection.id, everyone=False, readers=[], groups=["legal"])
    as_ann.share_collection(collection.id, everyone=False, readers=[], groups=["water"])
    catalogue.set_groups(ann, [])
    kept = as_ann.share_collection(collection.id, everyone=False, readers=[ben], groups=["water"])
    assert kept.groups == ("water",) and kept.readers == (ben,)
