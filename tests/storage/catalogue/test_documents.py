"""Documents, collections, pages, text, blocks: what the catalogue keeps and what goes together."""

import dataclasses
import time

import numpy as np
import pytest

from storage.catalogue.database import pack_tokens, unpack_tokens
from storage.errors import NameTaken, NotFound
from storage.records import Block, NewBlock, Page
from tests.storage.stored import FINGERPRINT, add_ready, commit, new_blocks, new_document, sqlite_only, write_shard


def test_a_document_comes_back_with_everything_that_was_kept(home):
    catalogue, store = home
    document = add_ready(catalogue, store, 7)
    assert catalogue.document(document.id) == document
    assert (document.source, document.title, document.state) == ("report-7.pdf", "Report 7", "ready")
    assert (document.num_pages, document.num_characters, document.num_tokens, document.num_blocks) == (2, 60, 18, 6)
    assert document.size_bytes == sum(shard.size_bytes for shard in catalogue.shards(document.id))
    assert catalogue.pages(document.id)[1] == Page(1, "1", 595.0, 842.0, 30, 60, "no text")
    assert catalogue.extracted_text(document.id).text == "x" * 60


def test_text_and_extras_survive_any_character(catalogue):
    document_id = catalogue.add_document(new_document()).document.id
    text = "ﬁ \u0000 𝔘 \ud800 العربية\n" * 50
    extras = {"outline": [["Ä", 1]]}
    catalogue.save_extracted(document_id, text=text, pages_read=[], extras=extras, notes=["page 3: no text"])
    assert catalogue.extracted_text(document_id).text == text
    assert catalogue.extracted_text(document_id).extras == extras
    assert catalogue.document(document_id).notes == ("page 3: no text",)
    catalogue.save_extracted(document_id, text="again", pages_read=[], title="New title")
    assert catalogue.extracted_text(document_id).text == "again"
    assert catalogue.document(document_id).title == "New title"


def test_the_same_content_made_by_the_same_model_is_not_added_twice(home):
    catalogue, store = home
    first = add_ready(catalogue, store, 1)
    again = catalogue.add_document(new_document(1))
    assert again.already_stored and again.document == first
    assert again.job is not None and again.job.state == "done"
    assert len(catalogue.documents()) == 1
    assert catalogue.find_document(first.content_sha256, first.fingerprint) == first


def test_content_that_failed_before_may_be_added_again(home):
    catalogue, _ = home
    failed = catalogue.add_document(new_document(1))
    catalogue.end_job(catalogue.claim_next_job("test"), "failed", error="locked")
    assert catalogue.document(failed.document.id).state == "failed"
    assert not catalogue.add_document(new_document(1)).already_stored


def test_nothing_of_a_document_is_searched_before_it_is_whole(home):
    catalogue, store = home
    document_id = catalogue.add_document(new_document()).document.id
    commit(catalogue, store, document_id)
    assert len(catalogue.all_block_refs()) == 0
    catalogue.finish_document(document_id)
    assert len(catalogue.all_block_refs()) == 3


def test_blocks_know_their_place_text_and_tokens(home):
    catalogue, store = home
    document = add_ready(catalogue, store)
    blocks = catalogue.blocks_of_document(document.id)
    assert [block.ordinal for block in blocks] == list(range(6))
    shards = catalogue.shards(document.id)
    assert blocks[4] == Block(
        id=shards[1].first_block_id + 1,
        document_id=document.id,
        ordinal=4,
        start=40,
        end=50,
        tokens=(4, 5, 6),
        boxes=((0, 0.1, 0.2, 0.3, 0.4),),
        shard_id=shards[1].id,
        shard=shards[1].name,
        index_in_shard=1,
    )
    assert catalogue.blocks_by_id([blocks[4].id, 999_999]) == {blocks[4].id: blocks[4]}
    touching = catalogue.blocks_of_document(document.id, start=25, end=38)
    assert [block.ordinal for block in touching] == [2, 3]


@pytest.mark.parametrize("tokens", [(), (0,), (65535, 1), (65536, 1), (2**31,)])
def test_token_ids_of_any_size_come_back(tokens):
    assert unpack_tokens(pack_tokens(tokens), len(tokens)) == tokens


def test_more_blocks_are_fetched_at_once_than_one_statement_may_name(home):
    catalogue, store = home
    document_id = catalogue.add_document(new_document()).document.id
    shard = write_shard(store, 1200, group=document_id)
    committed = catalogue.commit_shard(document_id, shard, new_blocks(1200))
    assert list(catalogue.blocks_by_id(reversed(committed.block_ids))) != []
    assert catalogue.blocks_by_id(committed.block_ids).keys() == set(committed.block_ids)


def test_block_ids_are_never_handed_out_again(home):
    catalogue, store = home
    used: set[int] = set()
    for seed in range(3):
        document = add_ready(catalogue, store, seed)
        ids = {block.id for block in catalogue.blocks_of_document(document.id)}
        assert not used & ids
        used |= ids
        catalogue.delete_documents([document.id])


def test_block_ids_do_not_count_what_others_store(home, monkeypatch):
    catalogue, store = home
    clock = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: clock)

    def first_id(seed: int, num_blocks: int) -> int:
        document = catalogue.add_document(new_document(seed)).document
        return commit(catalogue, store, document.id, num_blocks=num_blocks, seed=seed).first_block_id

    mine = first_id(1, 3)
    for seed in range(2, 6):
        first_id(seed, 500)
    clock += 10**9
    assert first_id(6, 3) - mine == 10**6


def test_references_name_every_block_once_and_in_order(home):
    catalogue, store = home
    documents = [add_ready(catalogue, store, seed) for seed in range(3)]

    def check(refs, chosen):
        expected = [block for document in chosen for block in catalogue.blocks_of_document(document.id)]
        assert refs.block_ids.tolist() == [block.id for block in expected]
        assert np.all(np.diff(refs.block_ids) > 0)
        assert refs.indices.tolist() == [block.index_in_shard for block in expected]
        assert [refs.shards[id_].name for id_ in refs.shard_ids.tolist()] == [block.shard for block in expected]

    check(catalogue.all_block_refs(), documents)
    check(catalogue.all_block_refs(fingerprint=FINGERPRINT.digest), documents)
    check(catalogue.all_block_refs(fingerprint="another"), [])


def test_keys_of_a_title_count_while_the_title_is_the_same(home):
    catalogue, store = home
    first, second = (add_ready(catalogue, store, number) for number in (1, 2))
    for document, packed in ((first, b"12"), (second, b"34"), (first, b"56")):
        catalogue.put_title_keys(document.id, document.title, packed)
    assert catalogue.title_keys([first.id, second.id, "0" * 32]) == {first.id: b"56", second.id: b"34"}
    catalogue.rename_document(second.id, "Another")
    assert catalogue.title_keys([first.id, second.id]) == {first.id: b"56"}
    catalogue.delete_documents([first.id])
    assert catalogue.title_keys([first.id]) == {}
    with pytest.raises(NotFound):
        catalogue.put_title_keys(first.id, first.title, b"12")


def test_searching_documents_ignores_case_in_any_script_and_takes_signs_literally(home):
    catalogue, _ = home
    for seed, title in enumerate(("ÉTUDE Äpfel", "Growth of 100% in Straße_1", "growth of 1000 in town")):
        catalogue.add_document(new_document(seed, title=title))

    def titles(search):
        return [document.title for document in catalogue.documents(search=search, sort="title")]

    assert titles("étude") == ["ÉTUDE Äpfel"]
    assert titles("ÄPFEL report-0") == ["ÉTUDE Äpfel"]
    assert titles("100%") == ["Growth of 100% in Straße_1"]
    assert titles("strasse_") == ["Growth of 100% in Straße_1"]
    assert titles("growth in") == ["Growth of 100% in Straße_1", "growth of 1000 in town"]
    assert len(catalogue.documents(search="growth")) == 2


def test_more_words_than_the_database_compares_at_once_are_refused(catalogue):
    for search in ("a " * 2000, "a" * 60_000):
        for listed in (catalogue.documents, catalogue.answers):
            with pytest.raises(ValueError, match="Search for fewer words: at most 500 characters"):
                listed(search=search)
    assert catalogue.documents(search="a " * 250) == catalogue.answers(search="a " * 250) == []


def test_documents_are_sorted(home):
    catalogue, store = home
    small, large = add_ready(catalogue, store, 2, num_shards=1), add_ready(catalogue, store, 1, num_shards=3)
    unfinished = catalogue.add_document(new_document(3)).document

    def ids(**how):
        return [document.id for document in catalogue.documents(**how)]

    assert ids() == [unfinished.id, large.id, small.id]
    assert ids(sort="size") == [large.id, small.id, unfinished.id]
    assert ids(sort="title") == ids(sort="source") == [large.id, small.id, unfinished.id]
    with pytest.raises(ValueError, match="sorted by added, title, source, pages, size"):
        ids(sort="colour")


def test_renaming_and_moving_are_seen_at_once(home):
    catalogue, store = home
    document = add_ready(catalogue, store)
    collection = catalogue.create_collection("reports")
    assert catalogue.rename_document(document.id, " Annual report ").title == "Annual report"
    assert [found.id for found in catalogue.documents(search="annual report-0")] == [document.id]
    assert catalogue.move_document(document.id, collection.id).collection_id == collection.id
    assert catalogue.documents(collection_id=collection.id)[0].id == document.id
    assert catalogue.move_document(document.id, None).collection_id is None
    with pytest.raises(ValueError, match="needs a title"):
        catalogue.rename_document(document.id, "  ")
    with pytest.raises(NotFound, match="collection 'nowhere'"):
        catalogue.move_document(document.id, "nowhere")


def test_a_document_goes_into_the_collection_of_a_name_unless_it_stays_in_another(home):
    catalogue, _ = home
    collection = catalogue.create_collection("  Reports ")
    first = catalogue.add_document(new_document(1), collection=" Reports")
    assert first.document.collection_id == collection.id
    again = catalogue.add_document(new_document(1), collection="another")  # still being read
    assert again.already_stored and again.document.collection_id == collection.id
    assert [each.name for each in catalogue.collections()] == ["Reports"]
    loose = catalogue.add_document(new_document(2)).document
    assert loose.collection_id is None
    put = catalogue.add_document(new_document(2), collection="another")
    assert put.already_stored and put.document.id == loose.id
    assert {each.id: each.name for each in catalogue.collections()}[put.document.collection_id] == "another"
    with pytest.raises(ValueError, match="needs a name"):
        catalogue.add_document(new_document(3), collection="  ")
    assert len(catalogue.documents()) == 2


def test_collections_have_distinct_names_and_count_their_documents(home):
    catalogue, store = home
    catalogue.create_collection("  Reports ")
    other = catalogue.create_collection("another")
    add_ready(catalogue, store, collection="Reports")
    assert [(each.name, each.num_documents) for each in catalogue.collections()] == [("another", 0), ("Reports", 1)]
    with pytest.raises(NameTaken, match="Reports"):
        catalogue.create_collection("Reports")
    with pytest.raises(NameTaken, match="Reports"):
        catalogue.rename_collection(other.id, "Reports")
    assert catalogue.rename_collection(other.id, "Other").name == "Other"
    with pytest.raises(ValueError, match="needs a name"):
        catalogue.create_collection(" ")
    with pytest.raises(NotFound):
        catalogue.collection("nowhere")


def test_deleting_a_collection_keeps_its_documents(home):
    catalogue, store = home
    collection = catalogue.create_collection("reports")
    document = add_ready(catalogue, store, collection="reports")
    catalogue.delete_collection(collection.id)
    assert [(one.id, one.collection_id) for one in catalogue.documents()] == [(document.id, None)]
    assert catalogue.collections() == []


def test_deleting_a_document_takes_everything_of_it_and_nothing_else(home):
    catalogue, store = home
    gone, kept = add_ready(catalogue, store, 1), add_ready(catalogue, store, 2)
    quoting = catalogue.save_answer(question="q", text="a", body="{}", document_ids=[gone.id, kept.id])
    other = catalogue.save_answer(question="q", text="a", body="{}", document_ids=[kept.id])
    shards = [shard.name for shard in catalogue.shards(gone.id)]
    deleted = catalogue.delete_documents([gone.id, "unknown", gone.id])
    assert deleted.document_ids == (gone.id,)
    assert (deleted.num_blocks, deleted.num_answers) == (6, 1)
    assert sorted(deleted.shards) == sorted(shards)
    assert deleted.stored_files == ("1.pdf",)
    assert store.delete(deleted.shards) == gone.size_bytes
    assert catalogue.documents() == [kept]
    assert [answer.id for answer in catalogue.answers()] == [other.id]
    assert store.files() == {shard.name for shard in catalogue.shards()}
    assert catalogue.blocks_of_document(gone.id) == catalogue.pages(gone.id) == []
    assert [job.document_id for job in catalogue.jobs()] == [kept.id]
    for missing in (catalogue.document, catalogue.extracted_text):
        with pytest.raises(NotFound):
            missing(gone.id)
    with pytest.raises(NotFound):
        catalogue.answer(quoting.id)


@sqlite_only
def test_what_is_deleted_is_no_longer_in_the_files_of_the_catalogue(home):
    catalogue, store = home
    document = add_ready(catalogue, store, 1)
    catalogue.rename_document(document.id, "secret-title " * 50)
    answer = catalogue.save_answer(question="secret-words", text="t", body="secret-words " * 5000, document_ids=[])
    catalogue.save_answer(question="q", text="t", body="secret-quotation " * 500, document_ids=[document.id])
    path = catalogue.database.path

    def on_disk() -> bytes:
        return b"".join(each.read_bytes() for each in path.parent.glob(path.name + "*"))

    assert b"secret-words" in on_disk() and b"secret-quotation" in on_disk() and b"secret-title" in on_disk()
    catalogue.delete_documents([document.id])
    assert b"secret-title" not in on_disk() and b"secret-quotation" not in on_disk()
    catalogue.delete_answer(answer.id)
    assert b"secret" not in on_disk()


def test_a_shard_of_a_document_that_was_deleted_meanwhile_is_refused(home):
    catalogue, store = home
    document_id = catalogue.add_document(new_document()).document.id
    shard = write_shard(store, group=document_id)
    catalogue.delete_documents([document_id])
    with pytest.raises(NotFound, match="document"):
        catalogue.commit_shard(document_id, shard, new_blocks(3))
    assert catalogue.shards() == []


def test_a_rewritten_shard_takes_the_place_of_the_damaged_one_and_blocks_keep_their_ids(home):
    catalogue, store = home
    document = add_ready(catalogue, store)
    old = catalogue.shards(document.id)[1]
    before = catalogue.blocks_of_document(document.id)
    made = write_shard(store, 3, 101, group=document.id)
    replaced = catalogue.replace_shard(old.name, made)
    assert (replaced.name, replaced.checksum, replaced.id) == (made.name, made.checksum, old.id)
    after = catalogue.blocks_of_document(document.id)
    assert [dataclasses.replace(block, shard=made.name) for block in before[3:]] == after[3:]
    with pytest.raises(NotFound):
        catalogue.replace_shard(old.name, made)
    with pytest.raises(ValueError, match="3 blocks, its replacement 2"):
        catalogue.replace_shard(made.name, write_shard(store, 2))


def test_dropping_shards_takes_the_document_out_of_the_search_until_they_are_back(home):
    catalogue, store = home
    document = add_ready(catalogue, store)
    names = [shard.name for shard in catalogue.shards(document.id)]
    _, first_block = catalogue.document_and_first_block(document.id)
    assert first_block is not None
    assert catalogue.drop_shards(document.id) == tuple(names)
    assert catalogue.document_and_first_block(document.id) == (catalogue.document(document.id), None)
    assert catalogue.document(document.id).state == "ingesting"
    assert catalogue.document(document.id).num_blocks == 0
    assert len(catalogue.all_block_refs()) == 0
    commit(catalogue, store, document.id)
    commit(catalogue, store, document.id, first=3)
    assert catalogue.finish_document(document.id).num_blocks == 6
    assert (catalogue.document_and_first_block(document.id)[1] or 0) > first_block
    assert catalogue.counting_problems() == []


def test_the_memory_version_grows_exactly_when_what_is_searched_changes(home):
    catalogue, store = home
    versions = [catalogue.memory_version()]

    def grown() -> bool:
        versions.append(catalogue.memory_version())
        return versions[-1] > versions[-2]

    document = add_ready(catalogue, store)
    assert grown()
    catalogue.rename_document(document.id, "Another title")
    catalogue.save_answer(question="q", text="a", body="{}", document_ids=[])
    assert not grown()
    catalogue.replace_shard(catalogue.shards()[0].name, write_shard(store))
    assert grown()
    catalogue.delete_documents([document.id])
    assert grown()


def test_totals_count_what_is_ready(home):
    catalogue, store = home
    document = add_ready(catalogue, store)
    catalogue.add_document(new_document(9))
    totals = catalogue.totals()
    assert (totals.num_documents, totals.num_blocks, totals.num_tokens, totals.num_shards) == (1, 6, 18, 2)
    assert totals.size_bytes == document.size_bytes


def test_models_that_made_memory_are_remembered_once(home):
    catalogue, store = home
    catalogue.put_fingerprint(FINGERPRINT)
    other = dataclasses.replace(FINGERPRINT, fields={"weights": "another"})
    catalogue.put_fingerprint(other)
    assert catalogue.fingerprints() == [FINGERPRINT, other]
    add_ready(catalogue, store)
    assert catalogue.fingerprints(in_use=True) == [FINGERPRINT]


def test_a_block_spans_pages_with_a_box_on_each(home):
    catalogue, store = home
    document_id = catalogue.add_document(new_document()).document.id
    boxes = ((0, 0.123456789, 0.9, 0.5, 1.0), (1, 0.0, 0.0, 0.5, 0.1))
    shard = catalogue.commit_shard(document_id, write_shard(store, 1), [NewBlock(0, 4, (1, 2), boxes)])
    block = catalogue.blocks_by_id(shard.block_ids)[shard.first_block_id]
    assert block.boxes == ((0, 0.12346, 0.9, 0.5, 1.0), (1, 0.0, 0.0, 0.5, 0.1))
    assert block.tokens == (1, 2)
