"""Matches of stored tokens with a question, and the search that ranks by them."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from model.errors import ModelError
from model.inference.prefill import prefill
from model.inference.prompt import encode_prompt
from model.scoring.late_interaction import (
    best_matches,
    block_scores,
    token_matches,
)
from model.scoring.span_head import SpanHead
from model.scoring.span_selection import best_spans, span_head_logits, span_logits
from retrieval.errors import DamagedMemory
from retrieval.library import Library
from retrieval.query import decode, search
from retrieval.query.question import encode_question
from retrieval.query.search import find_blocks, token_scores
from tests.retrieval.conftest import BLOCK_SIZE, FOX, RAIN, TEXTS, WHALE, add, ask
from tests.retrieval.pdf_maker import Sheet, make_pdf
from tests.tiny_model import tiny_model

ONE_LAYER = ((0.0, 0.0, 0.0, 0.0), (1.0, 0.5, 0.0, 2.0))


def by_definition(queries_QWGD, keys_WCGLD, lengths_C, place_C=None, titles=()):
    """scores_C, block by block and query by query; without places no block has a neighbour. `titles`: for each block
    keys_TE of its document's title."""
    place = list(range(0, 2 * len(lengths_C), 2)) if place_C is None else place_C.tolist()
    shares = [float(query.norm()) for query in queries_QWGD]
    best = []
    for block, length in enumerate(lengths_C.tolist()):
        keys_LE = torch.cat([keys[block, :, :length].float().transpose(0, 1).flatten(1) for keys in keys_WCGLD], 1)
        keys_LE = torch.cat((keys_LE, *titles[block : block + 1]))
        best.append([max(0.0, float(torch.cosine_similarity(q.flatten(), keys_LE).max())) for q in queries_QWGD])
    scores = []
    for block, own in enumerate(best):
        near = [best[other] for other in range(len(best)) if abs(place[other] - place[block]) <= 1]
        around = [max(column) for column in zip(*near, strict=True)]
        total = sum(
            share * (0.5 * mine**2 + 0.5 * other**2) for share, mine, other in zip(shares, own, around, strict=True)
        )
        scores.append((total / sum(shares)) ** 0.5)
    return torch.tensor(scores)


def apart(count):
    return 2 * torch.arange(count)


def scores(queries_QWGD, keys_WCGLD, lengths_C):
    return block_scores(best_matches(token_matches(queries_QWGD, keys_WCGLD, lengths_C)), apart(len(lengths_C)))


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_score_of_a_block_is_the_norm_of_its_best_cosines_weighed_by_the_size_of_the_queries(layers, dtype):
    torch.manual_seed(0)
    queries_QWGD = torch.randn(5, layers, 2, 16) * torch.tensor([0.1, 1.0, 3.0, 1.0, 1.0]).view(-1, 1, 1, 1)
    keys_WCGLD = [torch.randn(7, 2, 8, 16).to(dtype) for _ in range(layers)]
    lengths_C = torch.tensor([7, 7, 1, 4, 7, 7, 2])
    scores_C = scores(queries_QWGD, keys_WCGLD, lengths_C)
    torch.testing.assert_close(scores_C, by_definition(queries_QWGD, keys_WCGLD, lengths_C), atol=1e-5, rtol=1e-4)
    assert scores_C.min() >= 0 and scores_C.max() <= 1
    place_C = torch.tensor([5, 9, 4, 20, 3, 10, 0])
    found_C = block_scores(best_matches(token_matches(queries_QWGD, keys_WCGLD, lengths_C)), place_C)
    expected_C = by_definition(queries_QWGD, keys_WCGLD, lengths_C, place_C)
    torch.testing.assert_close(found_C, expected_C, atol=1e-5, rtol=1e-4)


def test_landmarks_and_padding_never_match():
    queries_QWGD = torch.ones(1, 1, 1, 4)
    keys = torch.full((1, 1, 4, 4), -1.0)
    keys[0, 0, 2:] = 1.0  # padding, and the landmark
    assert scores(queries_QWGD, [keys], torch.tensor([2])).tolist() == pytest.approx([0.0])
    assert scores(queries_QWGD, [keys], torch.tensor([3])).tolist() == pytest.approx([1.0])


def test_the_length_of_a_key_does_not_matter_and_a_key_of_nothing_matches_nothing():
    queries_QWGD = torch.tensor([[[[1.0, 0.0]]], [[[0.0, 2.0]]]])
    keys = torch.tensor([[[[3.0, 0.0], [0.0, 0.5], [9.0, 9.0]]], [[[0.0, 0.0], [0.0, 0.0], [9.0, 9.0]]]])
    assert scores(queries_QWGD, [keys], torch.tensor([2, 2])).tolist() == pytest.approx([1.0, 0.0])


def test_pointers_meet_keys_and_the_best_span_ends_where_it_begins_or_later():
    keys = torch.tensor([[[[1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [9.0, 9.0]]]])
    pointers_2WGD = torch.tensor([[[[1.0, 0.0]]], [[[0.0, 3.0]]]])
    points_2CL = span_logits(pointers_2WGD, [keys], torch.tensor([3]))
    assert points_2CL[:, 0, :3].tolist() == [[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]] and points_2CL[0, 0, 3] == -torch.inf
    assert spans(points_2CL[:, :, :3]) == [(4.0, 0, 1)]  # the best start stands behind the best end
    assert spans(points_2CL[:, :, :3], longest=1) == [(3.0, 1, 1)]


def spans(points_2ST, **settings):
    return [tuple(row) for row in zip(*(x.tolist() for x in best_spans(points_2ST, **settings)), strict=True)]


def test_the_best_spans_are_those_of_a_search_through_all():
    torch.manual_seed(0)
    points_2ST = torch.randn(2, 20, 9)
    counts = torch.randint(1, 10, (20,))
    points_2ST = points_2ST.masked_fill(torch.arange(9) >= counts[:, None], -torch.inf)
    for longest in (1, 3, 24):
        for row, (total, first, last) in enumerate(spans(points_2ST, longest=longest)):
            starts, ends = points_2ST[:, row, : counts[row]].tolist()
            every = [
                (starts[a] + ends[b], a, b) for a in range(len(starts)) for b in range(a, min(len(ends), a + longest))
            ]
            assert (total, first, last) == pytest.approx(max(every))


def test_queries_of_the_tokens_average_to_the_query_of_search():
    model = tiny_model()
    queries_QWGD = encode_question(model, "Who built it?").queries_QWGD
    torch.testing.assert_close(queries_QWGD.mean(0), encode_question(model, "Who built it?").mean_query_YGD)


def test_layers_without_weight_have_no_say():
    model = tiny_model(search_weights=ONE_LAYER)
    assert model.searched_layers == (2,) and tiny_model().searched_layers == (1, 2)
    prompt = model.prompt("whales?")
    queries_YHQD = encode_prompt(model, prompt.ids).queries_YHQD[:, :, prompt.question]
    queries_QWGD = model.token_queries(queries_YHQD)
    assert queries_QWGD.shape == (queries_YHQD.shape[2], 1, 2, 16)
    torch.testing.assert_close(queries_QWGD[:, 0, 0], queries_YHQD[1, 0] + 0.5 * queries_YHQD[1, 1])
    torch.testing.assert_close(queries_QWGD[:, 0, 1], 2 * queries_YHQD[1, 3])
    assert torch.equal(model.search_weights_YH, torch.tensor(ONE_LAYER))


def test_a_search_without_any_head_is_refused():
    with pytest.raises(ModelError, match="at least one head"):
        tiny_model(search_weights=((0.0,) * 4, (0.0,) * 4))


@pytest.fixture(scope="module")
def by_tokens():
    return tiny_model(
        block_size=BLOCK_SIZE, window_blocks=4, context_blocks=2, ranks_by_tokens=True, search_weights=ONE_LAYER
    )


@pytest.fixture(scope="module", params=["bf16", "int8"])
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
    """A library in a copy of that home; ids of its documents by name. Landmarks propose everything."""
    monkeypatch.setattr(search, "FEWEST_PROPOSED", 1000)
    home, kv_dtype = stored_home
    shutil.copytree(home, tmp_path / "home")
    library = open_library(model=by_tokens, kv_dtype=kv_dtype)
    return library, {document.title: document.id for document in library.documents()}


def every_score(library, question):
    """Late-interaction scores of all stored blocks, read the long way."""
    model = library._workspace.loaded().model
    with library._index.open_snapshot(library._catalogue) as snapshot:
        reader = snapshot.reader()
        ids = torch.arange(reader.num_blocks).expand(1, model.num_kv_heads, 1, -1)
        keys = [reader.read(layer, ids)[0][0, :, 0].transpose(0, 1) for layer in model.searched_layers]
        queries_QWGD = encode_question(model, question).queries_QWGD
        place_N = torch.from_numpy(snapshot.document_N.astype("int64") << 32 | snapshot.ordinal_N)
        titles = [title_of(model, library.document(snapshot.document_ids[n]).title) for n in snapshot.document_N]
        return by_definition(queries_QWGD, keys, snapshot.blocks.length_N, place_N, titles)


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
    with library._index.open_snapshot(library._catalogue) as snapshot:
        found = find_blocks(library._workspace, snapshot, "What do whales do?", 6, None)
    torch.testing.assert_close(found.scores_C, scores_N.sort(descending=True).values[:6], atol=2e-3, rtol=0)
    torch.testing.assert_close(found.scores_C, scores_N[found.positions_C], atol=2e-3, rtol=0)
    assert found.confidence == pytest.approx(max(0.0, float(found.scores_C[0])))


def test_only_what_landmarks_propose_is_ranked(stored, monkeypatch):
    library, _ = stored
    monkeypatch.setattr(search, "FEWEST_PROPOSED", 5)
    with library._index.open_snapshot(library._catalogue) as snapshot:
        model = library._workspace.loaded().model
        proposed = (
            snapshot.landmarks.rank(encode_question(model, "whales?").mean_query_YGD, 5)
            .positions.sort()
            .values.tolist()
        )
        found = find_blocks(library._workspace, snapshot, "whales?", 1, None)
        titles = found.titles.of(snapshot.documents_of(torch.tensor(proposed)))
        scores = token_scores(snapshot, found.question.queries_QWGD, torch.tensor(proposed), titles)
    assert found.positions_C.tolist() == [proposed[int(scores.argmax())]]


def test_of_equal_scores_the_newest_block_wins(stored, monkeypatch):
    library, _ = stored
    monkeypatch.setattr(search, "token_scores", lambda snapshot, queries, positions, titles: torch.ones(len(positions)))
    with library._index.open_snapshot(library._catalogue) as snapshot:
        found = find_blocks(library._workspace, snapshot, "whales?", 4, None)
        assert found.positions_C.tolist() == list(range(snapshot.num_blocks - 1, snapshot.num_blocks - 5, -1))


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
    empty = library.create_collection("empty")
    assert library.search("What do whales do?", 8, within=Scope(collection_ids=(empty.id,))) == []


def test_after_a_restart_everything_is_found_again_the_same(stored, open_library, by_tokens):
    library, _ = stored
    before = [passage.to_dict() for passage in library.search("What do whales do?", 5)]
    again = [passage.to_dict() for passage in library.search("What do whales do?", 5)]  # keys are in memory now
    opened = open_library(model=by_tokens, kv_dtype=library._workspace.kv_dtype)
    assert before == again == [passage.to_dict() for passage in opened.search("What do whales do?", 5)]


def test_many_who_ask_at_once_find_what_each_finds_alone(stored):
    library, _ = stored
    questions = [f"What do whales do in {year}?" for year in range(1990, 1998)]
    alone = [[passage.to_dict() for passage in library.search(question, 4)] for question in questions]
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(lambda question: library.search(question, 4), questions))
    assert [[passage.to_dict() for passage in found] for found in together] == alone


def test_a_faiss_index_proposes_the_same(stored, open_library, by_tokens):
    library, _ = stored
    settings = {"model": by_tokens, "kv_dtype": library._workspace.kv_dtype}
    expected = library.search("What do whales do?", 5)
    opened = open_library(**settings, index="faiss")
    opened._index._faiss_factory = "Flat"
    found = opened.search("What do whales do?", 5)
    assert [passage.block_ids for passage in found] == [passage.block_ids for passage in expected]


def test_an_answer_reads_the_blocks_that_tokens_chose_and_near_misses_are_the_next_ones(stored):
    library, _ = stored
    with library._index.open_snapshot(library._catalogue) as snapshot:
        found = find_blocks(library._workspace, snapshot, "What do whales do?", 12, None)
        ranked = snapshot.blocks.ids_N[found.positions_C.numpy()].tolist()
    answer = ask(library, "What do whales do?", k=3)
    assert sorted(answer.settings["candidates"]) == sorted(ranked[:3])
    assert {block for passage in answer.passages for block in passage.block_ids} == set(ranked[:3])
    assert [passage.block_ids for passage in answer.near_misses] == [(block,) for block in ranked[3:8]]
    scores = [passage.score for passage in answer.near_misses]
    assert scores == pytest.approx([max(0.0, float(score)) for score in found.scores_C[3:8]], abs=1e-5)
    assert answer.confidence == pytest.approx(found.confidence)


def test_under_the_threshold_even_a_handful_of_blocks_is_not_enough(open_library, write, by_tokens):
    library = open_library(model=by_tokens.with_config(answer_threshold=0.999))
    add(library, write("short.txt", "The fox sleeps."))
    assert not ask(library, "What do whales do?").found


def test_a_damaged_block_is_named_before_it_is_ranked(open_library, write, by_tokens):
    library = open_library(model=by_tokens)
    add(library, write("fox.txt", FOX))
    (shard, *_) = sorted((library._workspace.kv_folder).rglob("*.kv"))
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
    monkeypatch.setattr(search, "token_scores", lambda *_: pytest.fail("no keys are read"))
    with library._index.open_snapshot(library._catalogue) as snapshot:
        found = find_blocks(library._workspace, snapshot, "whales?", 5, None)
        ranking = snapshot.landmarks.rank(encode_question(model, "whales?").mean_query_YGD, 5)
    assert torch.equal(found.positions_C, ranking.positions) and torch.equal(found.scores_C, ranking.gates)


def test_a_quoted_sentence_points_somewhere_in_itself_and_its_passage_comes_first(open_library, write):
    model = tiny_model(block_size=64, ranks_by_tokens=True, quotes=True, quotes_sentences=True, points_at_answers=True)
    library = open_library(model=model)
    for name, text in TEXTS.items():
        add(library, write(f"{name}.txt", text))
    for question in ("What do whales do?", "Where does rain fall?", "Who built it?"):
        answer = ask(library, question, max_tokens=128)
        assert answer.short and answer.short in answer.text
        (document_id, start, _), *_ = [token.quoted_from for token in answer.tokens if token.quoted_from]
        first = answer.passages[0]
        assert first.document_id == document_id and first.start_index <= start < first.end_index
        assert answer.other_sentences and library.answer(answer.id) == answer
        said = {answer.text, *(other.passage.text for other in answer.other_sentences)}
        assert len(said) == 1 + len(answer.other_sentences), "every sentence once"
        for other in answer.other_sentences:
            passage = other.passage
            text = TEXTS[passage.source.removesuffix(".txt")]
            assert text[passage.start_index : passage.end_index] == passage.text.strip()
            assert other.short and other.short in passage.text and 0 <= passage.score <= 1
            assert passage.blocks[0].start <= passage.start_index < passage.end_index <= passage.blocks[-1].end


def test_the_head_sees_keys_and_queries_laid_end_to_end_as_in_training():
    torch.manual_seed(0)
    head = SpanHead(2 * 3 * 4, 8, 1).eval()
    keys_WCGLD, lengths_C = [torch.randn(5, 3, 6, 4).bfloat16() for _ in range(2)], torch.tensor([5, 5, 2, 5, 1])
    queries_QWGD, pointers_2WGD = torch.randn(4, 2, 3, 4), torch.randn(2, 2, 3, 4)
    found_2CL = span_head_logits(head, queries_QWGD, pointers_2WGD, keys_WCGLD, lengths_C)
    keys_CLE = torch.zeros(5, 6, 24)
    for layer in range(2):
        for group in range(3):
            at = 12 * layer + 4 * group
            keys_CLE[..., at : at + 4] = keys_WCGLD[layer][:, group].float()
    there_CL = torch.arange(6) < lengths_C[:, None]
    asked = torch.ones(1, 4, dtype=torch.bool)
    wanted, _ = head(
        keys_CLE[None], there_CL[None], queries_QWGD.flatten(1)[None], asked, pointers_2WGD.flatten(1)[None]
    )
    torch.testing.assert_close(found_2CL, wanted[0].detach())


def test_a_model_with_a_head_quotes_what_its_head_points_at(open_library, write, monkeypatch):
    plain = tiny_model(
        block_size=64, ranks_by_tokens=True, search_weights=ONE_LAYER, quotes=True, quotes_sentences=True,
        points_at_answers=True,
    )  # fmt: skip
    torch.manual_seed(0)
    library = open_library(model=plain.with_span_head(SpanHead(2 * 16, 8, 1).eval()))
    add(library, write("fox.txt", FOX))
    word = FOX.split()[12]
    wanted = FOX.index(word)

    def pointing(head, queries, pointers, keys, lengths):
        points_2CL = torch.zeros(2, *keys[0].shape[:1], 64)
        points_2CL[0].view(-1)[wanted // 63 * 64 + wanted % 63] = 50.0
        last = wanted + len(word) - 1
        points_2CL[1].view(-1)[last // 63 * 64 + last % 63] = 50.0
        return points_2CL.masked_fill(torch.arange(64) >= lengths[:, None], -torch.inf)

    monkeypatch.setattr(decode, "span_head_logits", pointing)
    assert ask(library, "What does the fox do?", max_tokens=200, k=50).short == word.strip(".,")


def test_a_sentence_is_shown_on_its_own_page_where_its_block_begins_on_the_one_before(open_library, tmp_path):
    said = ("The fox sleeps in the den.", "The wolf hunts at night.", "The bear eats fish at noon.")
    sheets = [Sheet([(72, 700, 12, text)]) for text in said]
    path = tmp_path / "animals.pdf"
    path.write_bytes(make_pdf(sheets))
    model = tiny_model(block_size=64, ranks_by_tokens=True, quotes=True, quotes_sentences=True, points_at_answers=True)
    library = open_library(model=model)
    document = add(library, path)
    across = [block for page in (1, 2, 3) for block in library.page_text(document, page).blocks]
    assert any(len({box.page for box in block.boxes}) > 1 for block in across)
    answer = ask(library, "What does the wolf do?", max_tokens=128)
    assert {answer.text, *(other.passage.text for other in answer.other_sentences)} == set(said)
    for other in answer.other_sentences:
        page = 1 + said.index(other.passage.text)
        assert other.passage.pages == (page,) and {box.page for box in other.passage.boxes} == {page}
        assert "".join(other.parts) == other.passage.text and other.short in other.parts[1]
