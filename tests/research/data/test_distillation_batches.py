"""What the memory layer is taught, and questions made of sentences."""

import random
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from model.scoring.late_interaction import score, token_matches
from model.scoring.sentences import may_answer, sentence_borders
from research.train.convert.init_from_encoder import Encoder
from research.train.data.batches.distillation_batches import DistillationBatchMaker
from research.train.data.batches.text_batches import TextRowShape
from research.train.data.examples import places_of
from research.train.data.questions.cloze_questions import cloze_questions
from research.train.data.questions.facts import relations_about_subjects, standalone_relations
from research.train.data.questions.pseudo_queries import definitions
from research.train.data.teacher_states import TeacherStates
from research.train.data.token_cosines import TokenCosines
from research.train.losses.retriever_loss import (
    RetrieverTrainer,
    answering_sentences,
    retriever_loss,
)
from research.train.recipes.default_data import Prepared
from research.train.recipes.default_model import start
from research.train.recipes.default_recipe import SIZES
from tests.research.conftest import NAMES

PLANTED = re.compile(
    "|".join(
        re.escape(asked[1:]).replace(
            re.escape("{subject}")[1:] if asked.startswith("{") else re.escape("{subject}"), ".+"
        )
        for relation in (*relations_about_subjects(), *standalone_relations())
        for asked in relation.asked
    )
)
"""Questions about inserted facts; the first letter may have become a capital."""


def test_taught_rows_point_at_the_answer_and_know_what_the_encoder_saw(prepared: Prepared, encoder: Encoder) -> None:
    recipe = SIZES["tiny"]
    model = start(prepared, recipe, encoder)
    shape = replace(recipe.shape, plain=TextRowShape(facts=0.6))
    maker = DistillationBatchMaker(prepared.questions, prepared.texts, model, encoder, shape)
    built = inserted = made = 0
    for number in range(4):
        batch, again = maker.make(number), maker.make(number)
        assert all(torch.equal(a, b) for a, b in zip(vars(batch).values(), vars(again).values(), strict=True))
        assert len(batch.question_ids_QT) == recipe.shape.questions
        blocks_NL = batch.ids_RT.unflatten(1, (-1, recipe.block_size)).flatten(0, 1)
        raw = blocks_NL[:, :-1].flatten()
        for asked, gold, (first, last) in zip(
            batch.question_ids_QT, batch.gold_QN, batch.spans_Q2.tolist(), strict=True
        ):
            assert gold.any()
            assert first >= 0  # every question of this data has its answer word for word in the text
            assert gold[first // (recipe.block_size - 1)]
            answer = model.decode(raw[first : last + 1].tolist()).strip()
            question = model.decode(asked.tolist())
            if "Who built" in question:
                built += 1
                assert answer in NAMES
            elif PLANTED.search(question):
                inserted += 1
            else:
                made += 1
                assert answer not in question
        # Letters have states, landmarks and padding have none.
        there_RT = batch.states_RTE.abs().amax(-1) > 0
        assert not there_RT[~batch.valid_RT].any()
        assert not there_RT.unflatten(1, (-1, recipe.block_size))[..., -1].any()
        assert there_RT[batch.valid_RT].float().mean() > 0.5
    assert built and inserted and made


def test_a_token_is_taught_the_state_of_its_own_characters(prepared: Prepared, encoder: Encoder) -> None:
    """Of the piece that holds its first letter and of the one that holds its last: their mean."""
    recipe = SIZES["tiny"]
    model = start(prepared, recipe, encoder)
    teacher = TeacherStates(encoder, model.tokenizer)
    text = "The castle was built by Anna Bell in 1712."
    ids = model.tokenize(text).ids
    ((by_token, mean),) = teacher.of([ids])
    states_BTE, real_BT, characters_BT2 = encoder.states([text])
    states, characters = states_BTE[0][real_BT[0]], characters_BT2[0][real_BT[0]].tolist()

    def piece_at(place: int) -> int:
        return next(number for number, (low, high) in enumerate(characters) if low <= place < high)

    end = 0
    for token, state in zip(ids, by_token, strict=True):
        begin, end = end, end + len(model.decode([token]))
        letters = text[begin:end].lstrip()
        wanted = 0.5 * (states[piece_at(end - len(letters))] + states[piece_at(end - 1)])
        torch.testing.assert_close(state, wanted, rtol=1e-4, atol=1e-4)
    assert end == len(text)
    torch.testing.assert_close(mean, states.mean(0), rtol=1e-4, atol=1e-4)


def test_hard_negatives_are_mined_or_else_of_the_same_article(prepared: Prepared, encoder: Encoder) -> None:
    recipe, length = SIZES["tiny"], 2 * 63
    data, model = prepared.questions, start(prepared, SIZES["tiny"], encoder)
    pick, draw = random.Random(0), np.random.default_rng(0)
    plain = DistillationBatchMaker(data, prepared.texts, model, encoder, recipe.shape)
    found = 0
    for question in data.questions:
        for other in plain._siblings(question, pick):
            found += 1
            assert data.titles[other.document] == data.titles[question.document]
            assert other.document != question.document or abs(other.start - question.start) > length
    assert found
    question = data.questions[0]
    other = next(q.document for q in data.questions if data.titles[q.document] != data.titles[question.document])
    hard_negatives = {(question.document, question.ids): [(question.document, question.start), (other, 45)]}
    maker = DistillationBatchMaker(data, prepared.texts, model, encoder, recipe.shape, hard_negatives=hard_negatives)
    for _ in range(9):  # never the stretch that holds the answer
        ((document, first),) = maker._hard_negative(question, max(0, question.start - 5), pick, draw)
        assert document == other and first <= 45


def test_sentences_of_a_row_are_numbered_through_the_batch(prepared: Prepared, encoder: Encoder) -> None:
    recipe = SIZES["tiny"]
    model = start(prepared, recipe, encoder)
    batch = DistillationBatchMaker(prepared.questions, prepared.texts, model, encoder, recipe.shape).make(2)
    size = recipe.block_size
    raw_RP = batch.ids_RT.unflatten(1, (-1, size))[..., :-1].flatten(1)
    sentence_RP = batch.sentence_NJ.flatten().unflatten(0, (len(raw_RP), -1))
    there_RP = batch.valid_RT.unflatten(1, (-1, size))[..., :-1].flatten(1)
    assert bool((sentence_RP[~there_RP] == -1).all())
    seen: set[int] = set()
    for raw_P, number_P, valid_P in zip(raw_RP, sentence_RP, there_RP, strict=True):
        text = model.decode(raw_P[valid_P].tolist())
        wanted = [text[a:b] for a, b in sentence_borders(text) if may_answer(text[a:b])]
        numbers = [number for number in dict.fromkeys(number_P.tolist()) if number >= 0]
        assert not seen & set(numbers)
        seen |= set(numbers)
        for sentence, number in zip(wanted, numbers, strict=True):
            assert model.decode(raw_P[number_P == number].tolist()).strip().startswith(sentence.strip()[:-1])
    assert max(seen) == int(batch.sentence_NJ.max())
    right_QS, unsure_QS = answering_sentences(batch)
    assert bool((right_QS.sum(1) <= 1).all()) and bool(right_QS.any()) and not bool((right_QS & unsure_QS).any())
    for (first, _), right_S in zip(batch.spans_Q2.tolist(), right_QS, strict=True):
        assert right_S.nonzero().flatten().tolist() == [n for n in [int(batch.sentence_NJ.flatten()[first])] if n >= 0]


def test_a_sentence_is_scored_as_quoting_scores_it() -> None:
    torch.manual_seed(0)
    queries_QTE, keys_NJE = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    there_QT = torch.tensor([[True, True, False], [True, True, True]])
    sentence_NJ = torch.tensor([[0, 0, 0, 1, 1], [1, 1, -1, 2, 2]])
    found_QS = TokenCosines.of(queries_QTE, there_QT, keys_NJE).sentence_scores(sentence_NJ)
    keys_WCGLD = [torch.nn.functional.pad(keys_NJE, (0, 0, 0, 1))[:, None]]
    for scores_S, queries_TE, there_T in zip(found_QS, queries_QTE, there_QT, strict=True):
        matches_TCL = token_matches(queries_TE[there_T][:, None, None], keys_WCGLD, torch.tensor([5, 5]))[..., :5]
        for number, value in enumerate(scores_S):
            served = score(matches_TCL.flatten(1)[:, None, sentence_NJ.flatten() == number])
            torch.testing.assert_close(value, served[0])


def test_a_title_counts_in_every_block_and_sentence_of_its_row_as_search_has_it() -> None:
    torch.manual_seed(0)
    queries_QTE, keys_NJE, titles_RTE = torch.randn(2, 3, 8), torch.randn(4, 5, 8), torch.randn(2, 4, 8)
    there_QT, raw_NJ = torch.ones(2, 3, dtype=torch.bool), torch.ones(4, 5, dtype=torch.bool)
    title_mask_RT = torch.tensor([[False, True, True, False], [False] * 4])
    sentence_NJ = torch.tensor([[0] * 5, [0, 0, 1, 1, 1], [2] * 5, [2, 2, 2, 3, 3]])
    plain = TokenCosines.of(queries_QTE, there_QT, keys_NJE)
    titled = plain.with_titles(queries_QTE, there_QT, titles_RTE, title_mask_RT)
    # The second row has no title; in the first one the title's tokens are as good as any of the text.
    torch.testing.assert_close(titled.block_scores(raw_NJ)[:, 2:], plain.block_scores(raw_NJ)[:, 2:])
    torch.testing.assert_close(titled.sentence_scores(sentence_NJ)[:, 2:], plain.sentence_scores(sentence_NJ)[:, 2:])
    longer_NJE = torch.cat((keys_NJE[:2], titles_RTE[:1, 1:3].expand(2, -1, -1)), 1)
    longer = TokenCosines.of(queries_QTE, there_QT, longer_NJE)
    torch.testing.assert_close(titled.block_scores(raw_NJ)[:, :2], longer.block_scores(raw_NJ.new_ones(2, 7)))
    both_NJ = torch.tensor([[0] * 7, [0, 0, 1, 1, 1, 1, 1]])
    torch.testing.assert_close(titled.sentence_scores(sentence_NJ)[:, :2], longer.sentence_scores(both_NJ))


def test_rows_have_the_titles_of_their_documents(prepared: Prepared, encoder: Encoder) -> None:
    model = start(prepared, SIZES["tiny"], encoder)
    for untitled in (0.0, 1.0):
        shape = replace(SIZES["tiny"].shape, untitled=untitled)
        batch = DistillationBatchMaker(prepared.questions, prepared.texts, model, encoder, shape).make(0)
        rows = zip(batch.titles_RT, batch.title_mask_RT, strict=True)
        found = {model.decode(ids[there].tolist()).strip() for ids, there in rows}
        # Rows of plain text have no title.
        assert found <= {"", *prepared.questions.titles} and (len(found) > 1) == (untitled == 0)


def test_other_places_that_say_the_answer_are_marked(prepared: Prepared, encoder: Encoder) -> None:
    recipe = SIZES["tiny"]
    model = start(prepared, recipe, encoder)
    maker = DistillationBatchMaker(prepared.questions, prepared.texts, model, encoder, replace(recipe.shape, rows=8))
    twice = 0
    for number in range(4):
        batch = maker.make(number)
        assert not bool((batch.gold_QN & batch.ignored_QN).any())
        raw_NJ = batch.ids_RT.unflatten(1, (-1, recipe.block_size)).flatten(0, 1)[:, :-1]
        for (first, last), elsewhere_NJ in zip(batch.spans_Q2.tolist(), batch.elsewhere_QNJ, strict=True):
            said = raw_NJ.flatten()[first : last + 1].tolist()
            if first // raw_NJ.shape[1] != last // raw_NJ.shape[1]:
                assert not bool(elsewhere_NJ.any())  # an answer across a border is not looked for
                continue
            assert bool(elsewhere_NJ.flatten()[first : last + 1].all())
            marked = raw_NJ[elsewhere_NJ].tolist()
            assert marked == said * (len(marked) // len(said))
            twice += len(marked) > len(said)
    assert twice


def test_places_of_an_answer_are_those_where_it_stands_whole_in_a_block() -> None:
    tokens_NL = np.array([[1, 2, 3, 1, 2], [2, 1, 2, 9, 1], [2, 3, 3, 3, 3]])
    assert places_of([1, 2], tokens_NL) == [(0, 0), (0, 3), (1, 1)]
    assert places_of([3, 3], tokens_NL) == [(2, 1), (2, 2), (2, 3)]
    assert places_of([1, 2, 3, 1, 2, 2], tokens_NL) == []


def test_a_sentence_with_something_left_out_asks_for_it() -> None:
    text = (
        "Satellites go round the earth. The first satellite was launched by the Soviet Union in 1957. "
        "It had four antennas and a radio that sent signals from Sputnik to the ground. "
        "The second one followed with a dog named Laika on November 3, 2007."
    )
    seen = set()
    for seed in range(60):
        for made in cloze_questions(text, random.Random(seed)):
            said = text[made.start : made.stop]
            assert made.question.endswith("?") and said not in made.question
            seen.add((made.question.split()[0], said))
    assert ("When", "1957") in {(word, said.removeprefix("in ")) for word, said in seen}
    assert ("When", "November 3, 2007") in seen
    assert ("How", "four") in seen
    assert {"Soviet Union"} <= {said for word, said in seen if word in ("Who", "What", "Which", "Where")}


def test_late_scores_are_the_weighted_mean_of_best_cosines() -> None:
    torch.manual_seed(0)
    queries, keys = torch.randn(2, 3, 8), torch.randn(4, 5, 8)
    there = torch.tensor([[True, True, False], [True, False, False]])
    raw = torch.ones(4, 5, dtype=torch.bool)
    raw[1, 3:] = False
    found = TokenCosines.of(queries, there, keys).block_scores(raw)
    for q in range(2):
        for n in range(4):
            tokens = queries[q, there[q]]
            best = [max(float(torch.cosine_similarity(t, k, dim=0)) for k in keys[n][raw[n]]) for t in tokens]
            weights = [float(t.norm()) for t in tokens]
            wanted = sum(w * b for w, b in zip(weights, best, strict=True)) / sum(weights)
            assert float(found[q, n]) == pytest.approx(wanted, abs=1e-5)


def test_teaching_a_batch_lowers_what_it_is_taught_by(prepared: Prepared, encoder: Encoder) -> None:
    recipe = SIZES["tiny"]
    model = start(prepared, recipe, encoder)
    taught = RetrieverTrainer(model, model.backbone.model.layers[-1].self_attn.k_proj.weight)
    batch = DistillationBatchMaker(prepared.questions, prepared.texts, model, encoder, recipe.shape).make(0)
    optimizer = torch.optim.AdamW(taught.parameters(), lr=2e-3)
    parts = []
    for _ in range(12):
        loss, metrics, tokens = retriever_loss(taught, batch)
        assert tokens > 0
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        parts.append({name: float(value) for name, value in metrics.items()})
    for name in ("late", "landmarks", "sentences", "span", "text"):
        assert parts[-1][name] < parts[0][name]


def test_a_sentence_that_says_what_something_is_becomes_a_question() -> None:
    text = (
        "It is a pity. A cairn is a pile of stones on a hill. But there is an end. The dams are the works of beavers."
    )
    found = [(d.question, text[d.start : d.stop]) for d in definitions(text, random.Random(0))]
    assert [said for _, said in found] == ["a pile of stones on a hill", "the works of beavers"]
    assert "cairn" in found[0][0] and "dams" in found[1][0] and "pile" not in found[0][0]
