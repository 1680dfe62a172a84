"""Questions that learn to choose among stored blocks: the memory stays, the query projection moves."""

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from model.backbone import LandmarkModel
from model.config import LandmarkConfig
from model.prefill import prefill
from model.training.examples import TokenDocuments, TokenQuestion
from model.training.searching import (
    Memory,
    QuestionSource,
    SearchShape,
    SearchTrainee,
    block_scores,
    choose_documents,
    judge,
    search_loss,
)
from tests.tiny_model import SHAPE, byte_tokenizer

TOPICS = ("river", "castle", "engine", "garden", "harbour", "theory", "market", "bridge")
SIZES = SearchShape(blocks=100, questions=4, proposed=6, judged=8)


@pytest.fixture
def model() -> LandmarkModel:
    """As many KV heads as query heads, and one token behind the question, as the default model has it."""
    torch.manual_seed(1)
    backbone = LlamaForCausalLM(LlamaConfig(**SHAPE | {"num_key_value_heads": 4})).eval()
    tokenizer = byte_tokenizer()
    landmark = tokenizer.convert_tokens_to_ids("<landmark>")
    config = LandmarkConfig(
        block_size=8, landmark_token_id=landmark, prompt="{question}\n", window_blocks=2, context_blocks=1
    )
    return LandmarkModel(backbone, tokenizer, config)


@pytest.fixture
def data(model) -> TokenDocuments:
    """One document a topic: its name stands in one sentence, and a question asks for it."""
    ids, questions = [], []
    for number, topic in enumerate(TOPICS):
        text = f"Nothing to see. The {topic} is here. Nothing more to see."
        ids.append(np.array(model.tokenize(text).ids, np.uint16))
        start = text.index(topic)  # one token a character
        asked = tuple(model.tokenize(f"The {topic}?").ids)
        questions.append(TokenQuestion("made", number, asked, start, start + len(topic), (), True, exact=True))
    return TokenDocuments(ids, [f"t{n}" for n in range(len(TOPICS) - 1)] + ["t0"], questions)


def memory_of(model, data: TokenDocuments) -> Memory:
    titles = [int(title[1:]) for title in data.titles]
    return Memory.read(model, {n: (ids, titles[n]) for n, ids in enumerate(data.ids)})


def test_the_memory_is_what_serving_stores(model, data):
    memory = memory_of(model, data)
    for number in (0, 5):
        rows = np.flatnonzero(memory.document_N == number)
        blocks = list(prefill(model, data.ids[number].tolist(), kv_dtype=torch.bfloat16))
        assert memory.first_N[rows].tolist() == [7 * block for block in range(len(blocks))]
        for row, block in zip(rows, blocks, strict=True):
            keys_LE = block.keys_YGLD[-1].transpose(0, 1).flatten(1)
            count = block.num_tokens
            torch.testing.assert_close(memory.keys_NLE[row][:count], keys_LE[:count], rtol=2e-2, atol=2e-2)
            torch.testing.assert_close(memory.landmarks_NE[row], keys_LE[-1].float(), rtol=2e-2, atol=2e-2)
            assert memory.raw_NL[row].tolist() == [token < count for token in range(7)]


def test_gold_blocks_are_those_with_a_part_of_the_answer(model, data):
    memory = memory_of(model, data)
    question = data.questions[4]
    gold = memory.gold_N(question)
    assert set(memory.document_N[gold]) == {4}
    tokens = data.ids[4].tolist()
    inside = [first for first in memory.first_N[gold] if first < question.stop and first + 7 > question.start]
    assert inside and len(inside) == gold.sum()
    block, row = memory.place(question, question.start)
    assert gold[block] and memory.first_N[block] + row == question.start
    assert model.decode(tokens[question.start : question.stop]) == "harbour"


def test_a_score_is_the_weighted_sum_of_squared_best_cosines():
    torch.manual_seed(0)
    queries, keys, raw = torch.randn(3, 6), torch.randn(4, 5, 6), torch.ones(4, 5, dtype=torch.bool)
    raw[2, 2:] = False
    lengths = queries.norm(dim=-1)
    for block, found in enumerate(block_scores(queries, keys, raw).tolist()):
        best = [max(0.0, *(float(torch.cosine_similarity(q, k, 0)) for k in keys[block][raw[block]])) for q in queries]
        wanted = sum(float(w) * b * b for w, b in zip(lengths / lengths.sum(), best, strict=True))
        assert found == pytest.approx(wanted, abs=1e-5)


def test_documents_are_chosen_up_to_so_many_blocks(data):
    sizes = {number: -(-len(ids) // 7) for number, ids in enumerate(data.ids)}
    chosen = choose_documents(data, blocks=25, size=7, seed=0)
    assert 25 - max(sizes.values()) < sum(sizes[number] for number in chosen) <= 25
    assert choose_documents(data, blocks=25, size=7, seed=0) == chosen
    assert choose_documents(data, blocks=10**6, size=7, seed=0) == set(sizes)


def test_learning_moves_the_query_projection_only_and_finds_more(model, data):
    trainee = SearchTrainee(model, memory_of(model, data), SIZES)
    source = QuestionSource(data.questions, data.questions, model, SIZES)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.AdamW([p for p in trainee.parameters() if p.requires_grad], lr=5e-3)
    first, losses = judge(trainee, source), []
    for step in range(30):
        loss, metrics, tokens = search_loss(trainee, source.make(step))
        assert tokens > 0 and set(metrics) >= {"late", "landmarks", "span"}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append({name: float(value) for name, value in metrics.items()})
    for name in ("late", "landmarks", "span"):
        assert sum(x[name] for x in losses[-5:]) < sum(x[name] for x in losses[:5])
    moved = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert moved and all("self_attn.q_proj" in name and ".2." in name for name in moved)
    last = judge(trainee, source)
    assert last["recall@1"] >= first["recall@1"] and last["recall@8"] > 0.5


def test_steps_are_a_function_of_their_number(model, data):
    source = QuestionSource(data.questions, data.questions, model, SIZES, seed=3)
    one, again = source.make(5), source.make(5)
    assert one.questions == again.questions and torch.equal(one.asked_QT, again.asked_QT)
    for row, question in enumerate(one.questions):
        assert one.asked_QT[row][one.there_QT[row]].tolist() == list(question.ids)
        end = int(one.there_QT[row].nonzero().max())
        assert one.asked_QT[row, end + 2] == model.tokenizer.eos_token_id


def test_a_document_with_the_same_title_is_neither_right_nor_wrong(model, data):
    """The last document is named like the first: its blocks never count for a question about the first."""
    memory = memory_of(model, data)
    trainee = SearchTrainee(model, memory, SIZES)
    source = QuestionSource(data.questions[:1], data.questions[:1], model, SIZES)
    loss = float(search_loss(trainee, source.make(0))[0])
    twin = memory.document_N == len(TOPICS) - 1
    memory.landmarks_NE[torch.from_numpy(twin)] *= 50
    memory.keys_NLE[torch.from_numpy(twin)] *= 50
    assert float(search_loss(trainee, source.make(0))[0]) == pytest.approx(loss, rel=1e-6)
