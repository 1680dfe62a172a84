"""The library as its users see it."""

from __future__ import annotations

import json

import pytest

from model.errors import ModelError
from retrieval.errors import DeletedMeanwhile, InvalidRequest, NotFound
from retrieval.index import snapshot as snapshots
from retrieval.types.answers import NOTHING_FOUND, Answer, AnswerToken
from retrieval.types.records import Scope
from storage.records import Page
from tests.retrieval.conftest import BLOCK_SIZE, FOX, RAIN, WHALE, add, ask, substance
from tests.tiny_model import calibrated, tiny_model


def test_an_answer_before_and_after_reopening_is_the_same(library, three, open_library):
    before = ask(library, "What do whales do?"), library.search("rain", 5)
    reopened = open_library()
    after = ask(reopened, "What do whales do?"), reopened.search("rain", 5)
    assert substance(before[0]) == substance(after[0])
    assert before[1] == after[1]


def test_a_stored_answer_reopens_as_it_was_given(library, three, open_library):
    given = ask(library, "What does the fox do?")
    assert library.answers.get(given.id) == given == open_library().answers.get(given.id)
    assert json.loads(json.dumps(given.to_dict())) == given.to_dict()
    assert [head.id for head in library.answers.list()] == [given.id]
    library.answers.delete(given.id)
    with pytest.raises(NotFound, match="answer"):
        library.answers.get(given.id)


def test_tokens_stream_before_the_answer_and_make_its_text(library, three):
    *tokens, answer = library.ask("What does the fox do?", k=3, max_tokens=8)
    assert isinstance(answer, Answer) and answer.tokens == tuple(tokens)
    assert "".join(token.text for token in tokens).strip() == answer.text or not answer.found
    for token in tokens:
        assert isinstance(token, AnswerToken)
        assert 0 <= token.memory_share <= 1
        assert sum(mass for _, mass in token.blocks) <= token.memory_share + 1e-5
        assert [mass for _, mass in token.blocks] == sorted((mass for _, mass in token.blocks), reverse=True)


def test_the_evidence_of_an_answer_adds_up(library, three):
    answer = ask(library, "What does the fox do?", k=4, max_tokens=5)
    assert len(answer.passages) == 4 and answer.near_misses
    assert answer.layers == (1, 2) and answer.heads == 4
    for passage in answer.passages:
        for block in passage.blocks:
            rows = answer.heat[block.block_id]
            assert len(rows) == 2 and all(len(row) == 4 for row in rows)
            assert sum(map(sum, rows)) / 8 == pytest.approx(block.score, abs=1e-4)
    shown = {block for passage in answer.passages for block in passage.block_ids}
    assert not shown & {block for passage in answer.near_misses for block in passage.block_ids}
    assert [p.score for p in answer.passages] == sorted((p.score for p in answer.passages), reverse=True)
    assert answer.memory_share == pytest.approx(sum(sum(map(sum, rows)) / 8 for rows in answer.heat.values()), abs=1e-3)
    assert 0 < answer.timings.search_seconds <= answer.timings.first_token_seconds <= answer.timings.seconds


def test_search_gives_exactly_k_passages_best_first_with_the_text_they_point_at(library, three):
    texts = {three["fox"]: FOX, three["whale"]: WHALE, three["rain"]: RAIN}
    for k in (1, 2, 3, 7, 20):
        found = library.search("the plain", k)
        assert len(found) == k
        assert [passage.score for passage in found] == sorted((passage.score for passage in found), reverse=True)
        for passage in found:
            assert texts[passage.document_id][passage.start_index : passage.end_index] == passage.text
            assert 0 <= passage.score <= 1 and passage.block_ids == tuple(block.block_id for block in passage.blocks)


def test_the_scores_of_all_blocks_are_a_distribution(library, write):
    add(library, write("short.txt", "A few words only, no more than that."))
    found = library.search("words", 50)
    assert sum(passage.score for passage in found) == pytest.approx(1, abs=1e-4)


def test_what_is_out_of_scope_is_never_found_read_or_near(library, three):
    library.documents.move(three["rain"], library.collections.create("weather").id)
    weather = library.collections.list()[0].id
    for scope, allowed in (
        (Scope(document_ids=(three["fox"],)), {three["fox"]}),
        (Scope(collection_ids=(weather,)), {three["rain"]}),
        (Scope((three["whale"],), (weather,)), {three["whale"], three["rain"]}),
    ):
        found = library.search("whales sing in the rain", 40, within=scope)
        assert {passage.document_id for passage in found} <= allowed
        for voters in ("token", "head", "group"):
            answer = ask(library, "Do whales sing?", within=scope, k=5, voters=voters)
            evidence = (*answer.passages, *answer.near_misses)
            assert {passage.document_id for passage in evidence} <= allowed
            with library.view.index.open_snapshot(library.view.catalogue) as snapshot:
                within = set(snapshot.blocks.ids_N[snapshot.indices_of(list(allowed)).numpy()].tolist())
            assert {block for token in answer.tokens for block, _ in token.blocks} <= within


def test_an_answer_in_scope_is_the_answer_of_a_library_that_holds_nothing_else(
    library, three, open_library, tmp_path, write
):
    alone = open_library(home=tmp_path / "alone")
    add(alone, write("whale.txt", WHALE))
    scoped = ask(library, "Do whales sing?", within=Scope((three["whale"],)))
    single = ask(alone, "Do whales sing?")
    assert scoped.text == single.text
    assert [t.logprob for t in scoped.tokens] == pytest.approx([t.logprob for t in single.tokens], abs=1e-5)
    assert [p.text for p in scoped.passages] == [p.text for p in single.passages]


@pytest.mark.files_only
def test_the_same_content_is_stored_once_and_said_so(library, write):
    first = add(library, write("a.txt", FOX))
    again = library.documents.submit(write("copy of a.txt", FOX))
    assert (again.state, again.note, again.document_id) == ("done", "already stored", first)
    assert len(library.documents.list()) == 1
    assert len(list((library.view.workspace.files_folder).iterdir())) == 1


def test_handing_a_file_in_again_puts_it_into_a_collection_but_takes_it_out_of_none(library, write):
    first, path = add(library, write("a.txt", FOX)), write("a.txt", FOX)
    assert library.documents.submit(path, collection="Foxes").note == "already stored"
    assert library.documents.get(first).collection_id == library.collections.list()[0].id
    again = library.documents.submit(path, collection="Whales")
    assert again.note == "already stored, in collection Foxes"
    assert library.documents.submit(path, collection=" Foxes ").note == "already stored"
    assert again.collection_id == library.documents.get(first).collection_id
    assert [one.name for one in library.collections.list()] == [
        "Foxes"
    ]  # none was made for a file that stays where it is


@pytest.mark.files_only
def test_deleting_removes_rows_files_and_the_answers_that_used_them(library, three):
    answer = ask(library, "What do whales do?", within=Scope((three["whale"],)))
    other = ask(library, "What of the fox?", within=Scope((three["fox"],)))
    home = library.view.workspace.home
    before = sum(path.stat().st_size for path in (home / "kv").rglob("*.kv"))
    for document_id in (three["whale"], three["fox"]):
        (home / "writer" / "0123" / document_id).mkdir(parents=True)
        (home / "writer" / "0123" / document_id / "a.kv").write_bytes(b"what a writer made of it")
    deleted = library.documents.delete([three["whale"], "unknown"])
    after = sum(path.stat().st_size for path in (home / "kv").rglob("*.kv"))
    assert (deleted.documents, deleted.answers) == (1, 1) and deleted.blocks > 0
    assert deleted.freed_bytes >= before - after > 0
    assert not (home / "kv" / three["whale"]).exists() and not list((home / "files").glob(f"{three['whale']}*"))
    assert [folder.name for folder in (home / "writer" / "0123").iterdir()] == [three["fox"]]
    with pytest.raises(NotFound):
        library.answers.get(answer.id)
    assert library.answers.get(other.id) == other
    assert all(passage.document_id != three["whale"] for passage in library.search("whales", 50))
    assert library.maintenance.verify().ok and not library.maintenance.verify().orphans


@pytest.mark.files_only
def test_a_document_deleted_while_it_is_read_stays_readable_until_the_answer_is_written(library, three):
    steps = library.ask("What do whales do?", k=3, max_tokens=6, within=Scope((three["rain"],)))
    next(steps)
    library.documents.delete([three["rain"]])
    assert (library.view.workspace.kv_folder / three["rain"]).exists()
    with pytest.raises(DeletedMeanwhile, match="Ask again"):
        list(steps)
    assert not (library.view.workspace.kv_folder / three["rain"]).exists()


@pytest.mark.files_only
def test_questions_that_came_later_do_not_keep_what_was_deleted(library, three):
    folder = library.view.workspace.kv_folder / three["rain"]
    earlier = library.ask("What do whales do?", k=3, max_tokens=6, within=Scope((three["fox"],)))
    next(earlier)
    library.documents.delete([three["rain"]])
    later = library.ask("What do whales do?", k=3, max_tokens=6, within=Scope((three["fox"],)))
    next(later)
    assert folder.exists()
    list(earlier)
    assert not folder.exists()
    assert isinstance(list(later)[-1], Answer)


def test_an_empty_library_holds_no_answer(library):
    answer = ask(library, "What do whales do?")
    assert answer.outcome == "not_found"
    assert (answer.found, answer.tokens, answer.passages) == (False, (), ())
    assert answer.text == NOTHING_FOUND and library.answers.get(answer.id) == answer
    assert library.search("anything", 3) == []


def test_between_the_thresholds_the_best_candidates_are_shown_as_a_guess(open_library, write, tmp_path):
    model = tiny_model(block_size=BLOCK_SIZE)
    guessing = calibrated(model, tmp_path / "guessing", answer_threshold=0.0, sure_threshold=1.1)
    library = open_library(model=guessing)
    add(library, write("a.txt", FOX))
    answer = ask(library, "Who won the cup?")
    assert (answer.outcome, answer.found) == ("perhaps", True) and answer.tokens and answer.passages
    assert library.answers.get(answer.id) == answer
    sure = open_library(model=calibrated(model, tmp_path / "sure", answer_threshold=0.0, sure_threshold=0.0))
    add(sure, write("b.txt", FOX))
    assert ask(sure, "Who won the cup?").outcome == "found"


def test_answers_of_earlier_releases_are_found_or_not_found(library, write):
    add(library, write("a.txt", FOX))
    plain = ask(library, "What does the fox do?").to_dict()
    del plain["outcome"]
    assert Answer.from_dict(plain).outcome == "found"
    assert Answer.from_dict({**plain, "found": False}).outcome == "not_found"


def test_below_the_calibrated_confidence_nothing_is_invented(open_library, write, tmp_path):
    model = calibrated(tiny_model(block_size=BLOCK_SIZE), tmp_path / "calibrated", answer_threshold=1.1)
    library = open_library(model=model)
    add(library, write("a.txt", FOX))
    answer = ask(library, "Who won the cup?")
    assert not answer.found and answer.tokens == () and answer.text == NOTHING_FOUND
    assert answer.outcome == "not_found" and answer.near_misses and 0 < answer.confidence <= 1
    few = add(library, write("b.txt", "Only a few words."))
    assert ask(library, "What words?", within=Scope((few,))).tokens, "too few blocks to judge by"


@pytest.mark.parametrize("wrong", [{"k": 0}, {"voters": "everybody"}, {"max_tokens": 0}])
def test_settings_that_cannot_be_served_are_refused(library, three, wrong):
    with pytest.raises(InvalidRequest):
        list(library.ask("fox?", **wrong))


def test_empty_and_endless_questions_are_refused(library, three):
    with pytest.raises(InvalidRequest, match="empty"):
        library.search("   ")
    with pytest.raises(InvalidRequest, match="too long"):
        library.search("word " * 2000)
    with pytest.raises(InvalidRequest):
        list(library.ask("word " * 2000))


def test_unknown_things_are_not_found(library, three):
    for call in (
        lambda: library.documents.get("nope"),
        lambda: library.jobs.get("nope"),
        lambda: library.search("fox", within=Scope(("nope",))),
        lambda: library.search("fox", within=Scope((), ("nope",))),
        lambda: library.collections.rename("nope", "x"),
    ):
        with pytest.raises(NotFound):
            call()


@pytest.mark.parametrize("page", [-1, 0, 2])
def test_a_page_that_a_document_does_not_have_is_not_found(library, three, page):
    for call in (library.documents.page_text, library.documents.page_image):
        with pytest.raises(NotFound, match=rf"no page {page} in fox\.txt. It has one page, page 1\."):
            call(three["fox"], page)


def test_a_quotation_stands_word_for_word_where_it_says(library, three):
    texts = {three["fox"]: FOX, three["whale"]: WHALE, three["rain"]: RAIN}
    answer = ask(library, "What do whales do?", quote=True, max_tokens=20)
    assert answer.quote and answer.text in "".join(texts.values())
    document_id, start, _ = answer.tokens[0].quoted_from
    assert texts[document_id][start] == (answer.tokens[0].text or texts[document_id][start])[0]
    for token in answer.tokens:
        if token.quoted_from is not None and len(token.text) == 1:
            document_id, start, end = token.quoted_from
            assert texts[document_id][start:end] == token.text


def test_a_follow_up_brings_its_earlier_question_along_and_a_new_subject_does_not(library, three):
    first = ask(library, "What do the whales do?", conversation_id="c1")
    follow = ask(library, "Where do they do it?", conversation_id="c1")
    fresh = ask(library, "What does the quick brown fox jump over?", conversation_id="c1")
    assert first.settings["asked"] == "What do the whales do?"
    assert follow.settings["asked"] == "What do the whales do? Where do they do it?"
    assert follow.question == "Where do they do it?"
    assert fresh.settings["asked"] == fresh.question
    assert {head.id for head in library.answers.list(conversation_id="c1")} == {first.id, follow.id, fresh.id}
    assert ask(library, "Where do they do it?").settings["asked"] == "Where do they do it?"


def test_leaving_a_block_out_changes_the_answers_likelihood_by_what_it_gave(library, three):
    answer = ask(library, "What do whales do?", k=3, voters="token")
    effect = library.answers.effect_of_block(answer.id, answer.passages[0].block_ids[0])
    assert effect.logprob_with == pytest.approx(sum(token.logprob for token in answer.tokens), abs=1e-3)
    assert effect.delta == pytest.approx(effect.logprob_without - effect.logprob_with)
    assert effect.delta != 0
    with pytest.raises(InvalidRequest, match="not among"):
        library.answers.effect_of_block(answer.id, 10**9)


def test_an_effect_within_a_collection_that_is_gone_is_refused(library, three):
    shelf = library.collections.create("Animals")
    library.documents.move(three["whale"], shelf.id)
    answer = ask(library, "What do whales do?", k=3, within=Scope(collection_ids=(shelf.id,)))
    library.collections.delete(shelf.id)
    with pytest.raises(NotFound, match="collection"):
        library.answers.effect_of_block(answer.id, answer.passages[0].block_ids[0])


def test_a_document_that_another_process_read_again_is_shown_as_it_is_now(library, three):
    assert library.documents.read(three["fox"])[0].text in FOX
    text = "Another text."
    pages = [Page(0, "", 0.0, 0.0, 0, len(text))]
    library.view.catalogue.save_extracted(three["fox"], text=text, pages_read=pages)
    assert library.documents.read(three["fox"])[0].text == text


def test_a_cancelled_answer_ends_with_what_there_is(library, three):
    taken = []
    *tokens, answer = library.ask("whales?", k=3, max_tokens=50, cancelled=lambda: len(taken) >= 2 or taken.append(1))
    assert len(tokens) == 2 and isinstance(answer, Answer) and answer.tokens == tuple(tokens)


def test_an_answer_that_nobody_reads_on_gives_the_model_back(library, three):
    steps = library.ask("whales?", k=3, max_tokens=50)
    next(steps)
    steps.close()
    assert len(library.search("fox", 2)) == 2


def test_page_text_shows_the_blocks_on_the_page(library, three):
    page = library.documents.page_text(three["whale"], 1)
    assert page.text.strip() == WHALE.strip() and page.start == 0
    assert len(page.blocks) == library.documents.get(three["whale"]).blocks
    joined = "".join(WHALE[block.start : block.end] for block in page.blocks)
    assert joined == WHALE.strip() or joined == WHALE.rstrip("\n")


def test_documents_and_collections_are_kept_in_order(library, three):
    collection = library.collections.create("reports")
    assert library.documents.move(three["fox"], collection.id).collection_id == collection.id
    assert [document.id for document in library.documents.list(collection_id=collection.id)] == [three["fox"]]
    assert library.collections.list()[0].documents == 1
    assert library.documents.rename(three["fox"], "A fox").title == "A fox"
    assert library.documents.list(search="FOX")[0].id == three["fox"], (
        "named so, before those whose text holds the word"
    )
    assert [document.source for document in library.documents.list(sort="source")] == [
        "fox.txt",
        "rain.txt",
        "whale.txt",
    ]
    with pytest.raises(InvalidRequest, match="already"):
        library.collections.create("reports")
    with pytest.raises(InvalidRequest, match="sorted by"):
        library.documents.list(sort="colour")
    library.collections.delete(collection.id)
    assert library.documents.get(three["fox"]).collection_id is None


def test_exact_and_faiss_give_the_same_answers(library, three, open_library, monkeypatch):
    monkeypatch.setattr(snapshots, "FAISS_FACTORY", "Flat")
    faiss = open_library(index="faiss")
    assert [p.block_ids for p in library.search("rain", 6)] == [p.block_ids for p in faiss.search("rain", 6)]
    mine, other = substance(ask(library, "whales?")), substance(ask(faiss, "whales?"))
    assert (mine["settings"].pop("index"), other["settings"].pop("index")) == ("exact", "faiss")
    assert mine["text"] == other["text"] and mine["tokens"] == other["tokens"]
    faiss.documents.delete([three["fox"]])
    assert three["fox"] not in {p.document_id for p in faiss.search("fox", 100)}


def test_a_failing_model_is_not_taken_for_a_missing_answer(library, three, monkeypatch):
    def broken(*_args, **_settings):
        raise ModelError("cannot")
        yield

    monkeypatch.setattr("retrieval.query.answer_generator.generate", broken)
    with pytest.raises(InvalidRequest, match="cannot"):
        ask(library, "fox?")


def test_a_question_with_half_a_character_is_asked_without_it(library, three):
    answer = ask(library, "What do \ud800whales do?\0")
    assert answer.question == "What do ?whales do?" and library.answers.get(answer.id).question == answer.question
    assert len(library.search("whales \udfff", 2)) == 2
