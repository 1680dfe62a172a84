"""Search that ranks by tokens what landmarks propose."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from model.errors import ModelError
from model.inference.prefill import prefill
from retrieval.errors import DamagedMemory
from retrieval.index import snapshot as snapshots
from retrieval.library import Library
from retrieval.query import search
from retrieval.query.question import encode_question
from retrieval.query.search import TokenMatches, find_blocks
from tests.model.scoring.test_late_interaction import by_definition
from tests.retrieval.conftest import BLOCK_SIZE, FOX, RAIN, TEXTS, WHALE, add, ask
from tests.tiny_model import ONE_LAYER, calibrated, tiny_model


def test_a_search_without_any_head_is_refused():
    with pytest.raises(ModelError, match="at least one head"):
        tiny_model(search_weights=((0.0,) * 4, (0.0,) * 4))


@pytest.fixture(scope="module")
def by_tokens():
    return tiny_model(
        block_size=BLOCK_SIZE, window_blocks=4, context_blocks=2, ranks_by_tokens=True, search_weights=ONE_LAYER
    )


@pytest.fixture(scope="module", params=["bf16", "int8", "k4v2"])
def stored_home(request, by_tokens, tmp_path_factory):
    """The home of a library whose model ranks by tokens, three documents in it; how it keeps them."""
    home = tmp_path_factory.mktemp("by-tokens") / "home"
    with Library.open(home, by_tokens, shard_bytes=20_000, kv_dtype=request.param) as library:
        for name, text in TEXTS.items():
            (home.parent / f"{name}.txt").write_text(text)
            add(library, home.parent / f"{name}.txt")
    return home, request.param


@pytest.fixture
def stored(stored_home, open_library, by_tokens, tmp_path, monkeypatch):
    """A library in a copy of that home; ids of its documents by name. Landmarks propose everything, and tokens alone
    decide."""
    monkeypatch.setattr(search, "FEWEST_PROPOSED", 1000)
    monkeypatch.setattr(search, "TERM_WEIGHT", 0.0)
    monkeypatch.setattr(search, "NAME_WEIGHT", 0.0)
    home, kv_dtype = stored_home
    shutil.copytree(home, tmp_path / "home")
    library = open_library(model=by_tokens, kv_dtype=kv_dtype)
    return library, {document.title: document.id for document in library.documents.list()}


def every_score(library, question):
    """Late-interaction scores of all stored blocks, read the long way."""
    model = library.view.workspace.loaded().model
    with library.view.index.open_snapshot(library.view.catalogue) as snapshot:
        reader = snapshot.reader()
        ids = torch.arange(reader.num_blocks).expand(1, model.num_kv_heads, 1, -1)
        keys = [reader.read(layer, ids)[0][0, :, 0].transpose(0, 1) for layer in model.searched_layers]
        queries_QWGD = encode_question(model, question).queries_QWGD
        place_N = torch.from_numpy(snapshot.document_N.astype("int64") << 32 | snapshot.ordinal_N)
        titles = [title_of(model, library.documents.get(document_id).title) for document_id in snapshot.document_ids]
        titles_N = [titles[n] for n in snapshot.document_N]
        return by_definition(queries_QWGD, keys, snapshot.blocks.length_N, place_N, titles_N)


def title_of(model, title):
    """keys_TE of a title's tokens behind "This is about"."""
    count = len(model.tokenize(f" {title}").ids)
    keys_YGTD = torch.cat(
        [
            block.keys_YGLD[:, :, : block.num_tokens]
            for block in prefill(model, model.tokenize(f"This is about {title}").ids)
        ],
        2,
    )
    weighed = [model.memory_layers.index(layer) for layer in model.searched_layers]
    return keys_YGTD[weighed, :, -count:].permute(2, 0, 1, 3).flatten(1)


def test_tokens_decide_among_the_proposed_blocks(stored):
    library, _ = stored
    scores_N = every_score(library, "What do whales do?")
    with library.view.index.open_snapshot(library.view.catalogue) as snapshot:
        found = find_blocks(library.view.workspace, snapshot, "What do whales do?", 6, None)
    torch.testing.assert_close(found.scores_C, scores_N.sort(descending=True).values[:6], atol=2e-3, rtol=0)
    torch.testing.assert_close(found.scores_C, scores_N[found.indices_C], atol=2e-3, rtol=0)
    assert found.confidence == pytest.approx(max(0.0, float(found.scores_C[0])))


def test_a_block_that_holds_a_rare_term_of_the_question_comes_first(stored, monkeypatch, write):
    library, _ = stored
    plain = "There are many forms, and they are sent by mail. "
    text = plain * 30 + "Send form ZX-81 to the harbour office. " + plain * 30
    name = add(library, write("forms.txt", text))
    question = "Where do I send form ZX-81?"

    def found():
        with library.view.index.open_snapshot(library.view.catalogue) as snapshot:
            return find_blocks(library.view.workspace, snapshot, question, 70, None)

    before = found()
    monkeypatch.setattr(search, "TERM_WEIGHT", 0.9)
    after = found()
    held = library.view.catalogue.blocks_by_id(library_ids(library, after))
    best = held[library_ids(library, after)[0]]
    assert best.document_id == name and "ZX-81" in text[best.start : best.end]
    assert float(after.scores_C.max()) <= 1.0
    assert after.confidence == before.confidence and after.matched == before.matched


def library_ids(library, found):
    with library.view.index.open_snapshot(library.view.catalogue) as snapshot:
        return snapshot.blocks.ids_N[found.indices_C.numpy()].tolist()


def test_only_what_landmarks_propose_is_ranked(stored, monkeypatch):
    library, _ = stored
    monkeypatch.setattr(search, "FEWEST_PROPOSED", 5)
    with library.view.index.open_snapshot(library.view.catalogue) as snapshot:
        model = library.view.workspace.loaded().model
        proposed = (
            snapshot.landmarks.rank(encode_question(model, "whales?").mean_query_YGD, 5).indices.sort().values.tolist()
        )
        found = find_blocks(library.view.workspace, snapshot, "whales?", 1, None)
        titles = found.titles.of(snapshot.documents_of(torch.tensor(proposed)))
        scores = TokenMatches(snapshot, found.question.queries_QWGD).block_scores(torch.tensor(proposed), titles)
    assert found.indices_C.tolist() == [proposed[int(scores.argmax())]]


def test_of_equal_scores_the_newest_block_wins(stored, monkeypatch):
    library, _ = stored
    monkeypatch.setattr(TokenMatches, "block_scores", lambda self, indices, titles: torch.ones(len(indices)))
    with library.view.index.open_snapshot(library.view.catalogue) as snapshot:
        found = find_blocks(library.view.workspace, snapshot, "whales?", 4, None)
        assert found.indices_C.tolist() == list(range(snapshot.num_blocks - 1, snapshot.num_blocks - 5, -1))


def test_reading_in_several_pieces_changes_nothing(stored, monkeypatch):
    library, _ = stored
    before = library.search("Where does rain fall?", 5)
    monkeypatch.setattr(search, "_BLOCKS_AT_ONCE", 7)
    after = library.search("Where does rain fall?", 5)
    for one, other in zip(before, after, strict=True):
        assert one.block_ids == other.block_ids and one.score == pytest.approx(other.score, abs=1e-5)


def test_passages_are_scored_by_their_best_block_and_come_best_first(stored):
    library, _ = stored
    passages = library.search("What do whales do?", 4)
    assert len(passages) == 4
    for passage in passages:
        assert passage.score == max(block.score for block in passage.blocks)
    assert [passage.score for passage in passages] == sorted((passage.score for passage in passages), reverse=True)
    assert passages[0].score == pytest.approx(
        max(0.0, float(every_score(library, "What do whales do?").max())), abs=2e-3
    )


def test_the_scope_is_respected_and_an_empty_one_finds_nothing(stored):
    from retrieval.types.records import Scope

    library, ids = stored
    found = library.search("What do whales do?", 8, within=Scope(document_ids=(ids["rain"],)))
    assert found and {passage.document_id for passage in found} == {ids["rain"]}
    empty = library.collections.create("empty")
    assert library.search("What do whales do?", 8, within=Scope(collection_ids=(empty.id,))) == []


def test_after_a_restart_everything_is_found_again_the_same(stored, open_library, by_tokens):
    library, _ = stored
    before = [passage.to_dict() for passage in library.search("What do whales do?", 5)]
    again = [passage.to_dict() for passage in library.search("What do whales do?", 5)]  # keys are in memory now
    opened = open_library(model=by_tokens, kv_dtype=library.view.workspace.kv_dtype)
    assert before == again == [passage.to_dict() for passage in opened.search("What do whales do?", 5)]


def test_many_who_ask_at_once_find_what_each_finds_alone(stored):
    library, _ = stored
    questions = [f"What do whales do in {year}?" for year in range(1990, 1998)]
    alone = [[passage.to_dict() for passage in library.search(question, 4)] for question in questions]
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(lambda question: library.search(question, 4), questions))
    assert [[passage.to_dict() for passage in found] for found in together] == alone


def test_a_faiss_index_proposes_the_same(stored, open_library, by_tokens, monkeypatch):
    monkeypatch.setattr(snapshots, "FAISS_FACTORY", "Flat")
    library, _ = stored
    settings = {"model": by_tokens, "kv_dtype": library.view.workspace.kv_dtype}
    expected = library.search("What do whales do?", 5)
    opened = open_library(**settings, index="faiss")
    found = opened.search("What do whales do?", 5)
    assert [passage.block_ids for passage in found] == [passage.block_ids for passage in expected]


def test_an_answer_reads_the_blocks_that_tokens_chose_and_near_misses_are_the_next_ones(stored):
    library, _ = stored
    with library.view.index.open_snapshot(library.view.catalogue) as snapshot:
        found = find_blocks(library.view.workspace, snapshot, "What do whales do?", 12, None)
        ranked = snapshot.blocks.ids_N[found.indices_C.numpy()].tolist()
    answer = ask(library, "What do whales do?", k=3, quote=True)
    assert sorted(answer.settings["candidates"]) == sorted(ranked[:3])
    assert {block for passage in answer.passages for block in passage.block_ids} == set(ranked[:3])
    assert [passage.block_ids for passage in answer.near_misses] == [(block,) for block in ranked[3:8]]
    scores = [passage.score for passage in answer.near_misses]
    assert scores == pytest.approx([max(0.0, float(score)) for score in found.scores_C[3:8]], abs=1e-5)
    assert answer.confidence == pytest.approx(found.confidence)


def test_under_the_threshold_even_a_handful_of_blocks_is_not_enough(open_library, write, by_tokens, tmp_path):
    library = open_library(model=calibrated(by_tokens, tmp_path / "calibrated", answer_threshold=0.999))
    add(library, write("short.txt", "The fox sleeps."))
    assert not ask(library, "What do whales do?").found


@pytest.mark.files_only
def test_a_damaged_block_is_named_before_it_is_ranked(open_library, write, by_tokens):
    library = open_library(model=by_tokens)
    add(library, write("fox.txt", FOX))
    (shard, *_) = sorted((library.view.workspace.kv_folder).rglob("*.kv"))
    content = bytearray(shard.read_bytes())
    content[-100] ^= 1
    shard.write_bytes(content)
    with pytest.raises(DamagedMemory, match="fox.txt"):
        library.search("What does the fox do?", 4)
    with pytest.raises(DamagedMemory, match="fox.txt"):
        ask(library, "What does the fox do?")


def test_landmarks_rank_alone_unless_the_model_says_otherwise(open_library, write, model, monkeypatch):
    library = open_library()
    for name, text in (("whale", WHALE), ("rain", RAIN)):
        add(library, write(f"{name}.txt", text))
    monkeypatch.setattr(TokenMatches, "block_scores", lambda *_: pytest.fail("no keys are read"))
    with library.view.index.open_snapshot(library.view.catalogue) as snapshot:
        found = find_blocks(library.view.workspace, snapshot, "whales?", 5, None)
        ranking = snapshot.landmarks.rank(encode_question(model, "whales?").mean_query_YGD, 5)
    assert torch.equal(found.indices_C, ranking.indices) and torch.equal(found.scores_C, ranking.gates)


def test_a_long_question_takes_hardly_more_memory_than_a_short_one(stored, monkeypatch):
    """Matches of a token with a token take the most: of each piece, and of what is kept for the sentences."""
    library, _ = stored
    monkeypatch.setattr(search, "_PAIRS_AT_ONCE", 600)
    monkeypatch.setattr(search, "_PAIRS_KEPT", 600)
    pieces, token_matches = [], search.token_matches

    def counted(queries_QWGD, keys_WCGLD, lengths_C):
        pieces.append((len(queries_QWGD), len(lengths_C)))
        return token_matches(queries_QWGD, keys_WCGLD, lengths_C)

    monkeypatch.setattr(search, "token_matches", counted)
    long = "Where does rain fall, and what do whales do? " * 12
    found = library.search(long, 5)
    assert found and max(tokens for tokens, _ in pieces) > 60 and len(pieces) > 1
    assert all(tokens * blocks <= 600 or blocks == 1 for tokens, blocks in pieces), pieces
