from dataclasses import replace

import pytest
import torch

from model.attention.memory import InMemoryReader, KVBlock
from model.attention.selection import SelectionPolicy
from model.errors import ContextTooLong, ModelError
from model.inference.constrained_decoding import QuoteCursor, QuoteSource, word_starts
from model.inference.generate import Sampling, answer_logprobs, generate
from model.inference.prefill import prefill
from model.inference.prompt import encode_prompt
from model.inference.session import LandmarkSession
from tests.tiny_model import tiny_model

TEXT = b"The summit cairn was built in 1887 by the surveyors of the northern line. It has stood since then."


@pytest.fixture(scope="module")
def model():
    return tiny_model(seed=3)


@pytest.fixture(scope="module")
def text_ids(model):
    return model.tokenize(TEXT.decode()).ids


@pytest.fixture(scope="module")
def memory(model, text_ids):
    return InMemoryReader.from_blocks(model.memory_layers, list(prefill(model, text_ids)))


def test_greedy_answers_are_repeatable_and_never_hold_a_landmark(model, memory) -> None:
    prompt = model.prompt("When was it built?").ids
    first, second = (list(generate(model, prompt, memory=memory, sampling=Sampling(max_tokens=40))) for _ in range(2))
    assert [t.id for t in first] == [t.id for t in second]
    assert model.config.landmark_token_id not in [t.id for t in first]
    assert "".join(t.text for t in first) == model.decode(t.id for t in first if t.id >= 0)


def test_a_landmark_is_not_emitted_even_if_the_model_wants_it(model, memory) -> None:
    bias = torch.zeros(model.backbone.config.vocab_size)
    bias[model.config.landmark_token_id] = 1e4
    model.backbone.lm_head.bias = torch.nn.Parameter(bias)
    try:
        tokens = list(generate(model, [1, 2, 3], memory=memory, sampling=Sampling(max_tokens=20)))
    finally:
        model.backbone.lm_head.bias = None
    assert len(tokens) >= 1 and model.config.landmark_token_id not in [t.id for t in tokens]


@pytest.mark.parametrize("voters", ["token", "head", "group"])
def test_every_token_says_what_it_read(model, memory, voters) -> None:
    policy = SelectionPolicy(top_k=3, voters=voters)
    for token in generate(
        model, [4, 5, 6, 7, 8, 9, 10, 11], memory=memory, policy=policy, sampling=Sampling(max_tokens=3)
    ):
        assert [read.layer for read in token.selections] == list(model.memory_layers)
        for read in token.selections:
            assert read.gate_BHQS.shape == (1, 4, 1, 3) and read.ids_BHQS.shape == (1, 4, 1, 3)
            assert bool((read.gate_BHQS.sum(-1) < 1).all())


def test_stop_strings_end_the_answer_and_are_not_part_of_it(model, memory) -> None:
    free = list(generate(model, [70, 71, 72], memory=memory, sampling=Sampling(max_tokens=12)))
    text = "".join(t.text for t in free)
    stop = text[4:6]
    stopped = "".join(
        t.text for t in generate(model, [70, 71, 72], memory=memory, sampling=Sampling(max_tokens=12, stop=(stop,)))
    )
    assert stopped == text[: text.index(stop)]


def test_cancelling_ends_between_two_tokens(model, memory) -> None:
    seen: list[int] = []
    for token in generate(
        model, [1, 2], memory=memory, sampling=Sampling(max_tokens=50), cancelled=lambda: len(seen) >= 3
    ):
        seen.append(token.id)
    assert len(seen) == 3


def test_quote_mode_writes_only_text_that_stands_in_the_blocks(model, memory, text_ids) -> None:
    per_block = model.config.tokens_per_block
    blocks = [text_ids[at : at + per_block] for at in range(0, len(text_ids), per_block)]
    source = QuoteSource(blocks, [*range(1, len(blocks)), None])
    tokens = list(generate(model, [33, 34], memory=memory, quote_from=source, sampling=Sampling(max_tokens=20)))
    quoted = bytes(TEXT)
    answer = model.decode(t.id for t in tokens).encode()
    assert len(answer) > 0 and answer in quoted
    for token in tokens:
        assert source.token_at(token.quote) == token.id


def test_a_quotation_crosses_blocks_only_where_they_continue_each_other() -> None:
    cursor = QuoteCursor(QuoteSource([[1, 2], [3, 4], [2, 9]], [2, None, None]))
    assert cursor.advance(1) == (0, 0)
    assert set(cursor.allowed()) == {2}
    cursor.advance(2)
    assert set(cursor.allowed()) == {2}
    cursor.advance(2)
    assert cursor.places == [(2, 0)] and set(cursor.allowed()) == {9}


def test_a_tokenizer_of_bytes_tells_no_word_starts(model) -> None:
    assert word_starts(model.tokenizer) is None


def test_the_search_query_gives_the_very_logit_that_gates_the_block(model, memory) -> None:
    prompt = [11, 12, 13]
    layer = model.memory_layers[0]
    queries = encode_prompt(model, prompt).queries_YHQD[0]
    logits_HQN = queries.unflatten(0, (2, 2)) @ memory.landmarks(layer)[0].unsqueeze(1).transpose(-1, -2)
    token = next(
        iter(
            generate(
                model,
                prompt,
                memory=memory,
                policy=SelectionPolicy(top_k=99, voters="token"),
                sampling=Sampling(max_tokens=1),
            )
        )
    )
    read = next(r for r in token.selections if r.layer == layer)
    gates = read.gate_BHQS[0, :, 0]
    torch.testing.assert_close(
        (gates / gates.sum(-1, keepdim=True)), logits_HQN.flatten(0, 1)[:, -1].softmax(-1), atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize("policy", [SelectionPolicy(top_k=99, voters="token"), SelectionPolicy(top_k=2)])
def test_the_probability_of_an_answer_is_that_of_its_tokens(model, memory, policy) -> None:
    prompt = [40, 41, 42]
    tokens = list(generate(model, prompt, memory=memory, policy=policy, sampling=Sampling(max_tokens=12)))
    tokens = [t for t in tokens if t.id >= 0]
    (logprobs,) = answer_logprobs(model, prompt, [t.id for t in tokens], memory=memory, policy=policy)
    torch.testing.assert_close(logprobs, torch.tensor([t.logprob for t in tokens]), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("voters", ["token", "head", "group"])
@pytest.mark.parametrize("landmark_in_loss", [False, True])
@pytest.mark.parametrize("positions", ["library", "paper"])
def test_an_answer_is_scored_as_it_was_generated(memory, text_ids, voters, landmark_in_loss, positions) -> None:
    """What the causal check compares; the prompt was encoded before the answer, which fills three blocks."""
    model = tiny_model(seed=3, landmark_in_loss=landmark_in_loss)
    policy, library = SelectionPolicy(top_k=3, voters=voters, positions=positions), positions == "library"
    ids = model.prompt("When was it built?").ids if library else text_ids
    prompt, over = (encode_prompt(model, ids), memory) if library else (ids, None)
    tokens = [*generate(model, prompt, memory=over, policy=policy, sampling=Sampling(max_tokens=25))]
    tokens = [token for token in tokens if token.id >= 0]
    (logprobs,) = answer_logprobs(model, ids, [token.id for token in tokens], memory=over, policy=policy)
    torch.testing.assert_close(logprobs, torch.tensor([token.logprob for token in tokens]), atol=1e-5, rtol=1e-5)


def test_what_cannot_work_is_refused_with_what_to_do(model, memory) -> None:
    with pytest.raises(ModelError, match="landmark token"):
        next(generate(model, [1, model.config.landmark_token_id], memory=memory))
    with pytest.raises(ContextTooLong, match="shorten the question"):
        next(generate(model, [1] * 3000, memory=memory))
    with pytest.raises(ModelError, match="at least one token"):
        next(generate(model, [], memory=memory))
    with pytest.raises(ModelError, match="use 'library'|choose positions='library'"):
        next(generate(model, [1], memory=object(), policy=SelectionPolicy(positions="paper")))  # type: ignore[arg-type]


def test_an_empty_memory_is_an_answer_from_the_prompt_alone(model) -> None:
    empty = InMemoryReader(model.memory_layers)
    token = next(generate(model, [1, 2, 3], memory=empty))
    assert token.selections == ()


def test_blocks_of_two_texts_make_one_memory(model) -> None:
    blocks: list[KVBlock] = [*prefill(model, [1] * 20), *prefill(model, [2] * 20)]
    memory = InMemoryReader.from_blocks(model.memory_layers, blocks)
    assert memory.num_blocks == 6
    token = next(generate(model, [1, 2, 3], memory=memory, policy=SelectionPolicy(top_k=2)))
    assert all(read.ids_BHQS.shape[-1] == 2 for read in token.selections)


@pytest.mark.parametrize("voters", ["token", "head", "group"])
@pytest.mark.parametrize("landmark_in_loss", [False, True])
def test_a_known_answer_in_few_passes_is_as_likely_as_token_by_token(memory, text_ids, voters, landmark_in_loss):
    """Also where tokens fill a block of the local window."""
    model = tiny_model(seed=3, landmark_in_loss=landmark_in_loss)
    answer, policy = text_ids[20:60], SelectionPolicy(top_k=3, voters=voters)
    prompt = model.prompt("When?").ids
    session = LandmarkSession(model, memory=memory, policy=policy)
    output, wanted = session.feed(prompt), []
    for token in answer:
        logits_V = model.logits(output.hidden_BTE[0][output.next_row(landmark_in_loss)]).index_fill(
            -1, torch.tensor([model.config.landmark_token_id]), -torch.inf
        )
        wanted.append(float(logits_V.detach().log_softmax(-1)[token]))
        output = session.feed([token])
    found_BT = answer_logprobs(model, prompt, answer, memory=memory, policy=policy)
    assert found_BT.tolist() == [pytest.approx(wanted, abs=1e-4)]


@pytest.mark.parametrize("settings", [{}, {"memory_layers": (2,)}, {"memory_layers": (0, 1, 2)}])
@pytest.mark.parametrize("question", ["When?", "When was it built, by whom, and why there?"])
def test_an_answer_goes_on_from_the_encoded_prompt_as_from_its_tokens(text_ids, settings, question) -> None:
    model = tiny_model(seed=3, **settings)
    memory = InMemoryReader.from_blocks(model.memory_layers, list(prefill(model, text_ids)))
    prompt, policy = model.prompt(question).ids, SelectionPolicy(top_k=3)
    encoded = encode_prompt(model, prompt)
    assert encoded.queries_YHQD.shape[2] == len(prompt)
    for _ in range(2):  # the first answer leaves the encoded prompt as it is
        resumed, fed = (LandmarkSession(model, memory=memory, policy=policy) for _ in range(2))
        for got, wanted in ((resumed.resume(encoded), fed.feed(prompt)), (resumed.feed([7, 8]), fed.feed([7, 8]))):
            torch.testing.assert_close(got.hidden_BTE[0], wanted.hidden_BTE[0], atol=1e-4, rtol=1e-4)
            assert got.landmarks == wanted.landmarks
            assert torch.equal(got.selections[0][0].ids_BHQS, wanted.selections[0][0].ids_BHQS)


@pytest.mark.parametrize("voters", ["token", "head", "group"])
def test_a_block_left_out_of_the_softmax_is_a_memory_without_it(text_ids, voters) -> None:
    """Where all blocks are read, so that none takes its place; otherwise nothing else is chosen instead."""
    model = tiny_model(seed=3)
    blocks = list(prefill(model, text_ids))
    whole = InMemoryReader.from_blocks(model.memory_layers, blocks)
    without = InMemoryReader.from_blocks(model.memory_layers, blocks[:2] + blocks[3:])
    prompt, answer = model.prompt("When?").ids, text_ids[20:40]
    every = SelectionPolicy(top_k=len(blocks), voters=voters)
    left_out = answer_logprobs(model, prompt, answer, memory=whole, policy=replace(every, left_out=((2,),)))
    torch.testing.assert_close(left_out, answer_logprobs(model, prompt, answer, memory=without, policy=every))
    few = SelectionPolicy(top_k=1, voters=voters, left_out=(tuple(range(len(blocks))),))
    nothing = answer_logprobs(model, prompt, answer, memory=whole, policy=few)
    empty = InMemoryReader.from_blocks(model.memory_layers, [])
    torch.testing.assert_close(nothing, answer_logprobs(model, prompt, answer, memory=empty, policy=every))


@pytest.mark.parametrize("voters", ["token", "head", "group"])
def test_what_is_left_out_side_by_side_is_what_is_left_out_alone(text_ids, voters) -> None:
    model = tiny_model(seed=3)
    memory = InMemoryReader.from_blocks(model.memory_layers, list(prefill(model, text_ids)))
    prompt, answer, policy = model.prompt("When?").ids, text_ids[20:40], SelectionPolicy(top_k=3, voters=voters)
    rows = ((), (2,), (0, 1), (1, 3))
    together_BT = answer_logprobs(model, prompt, answer, memory=memory, policy=replace(policy, left_out=rows))
    for found_T, row in zip(together_BT, rows, strict=True):
        (alone_T,) = answer_logprobs(model, prompt, answer, memory=memory, policy=replace(policy, left_out=(row,)))
        torch.testing.assert_close(found_T, alone_T, atol=1e-4, rtol=1e-4)
    assert len({round(float(found_T.sum()), 3) for found_T in together_BT}) == len(rows)


class Library:
    """A memory in order into which nothing moves."""

    def __init__(self, memory: InMemoryReader) -> None:
        self.layers, self.num_blocks = memory.layers, memory.num_blocks
        self.landmarks, self.search, self.read = memory.landmarks, memory.search, memory.read


def test_under_paper_positions_a_library_stands_before_the_question(text_ids) -> None:
    """As the same blocks do as the memory of a text, while the question and its answer fit in a block."""
    model = tiny_model(seed=3, memory_layers=(0, 1, 2))
    blocks = list(prefill(model, text_ids))
    policy, sampling = SelectionPolicy(top_k=3, voters="token", positions="paper"), Sampling(max_tokens=3)
    text = InMemoryReader.from_blocks(model.memory_layers, blocks)
    wanted = list(generate(model, [1, 2, 3], memory=text, policy=policy, sampling=sampling))
    memory = Library(InMemoryReader.from_blocks(model.memory_layers, blocks))
    for prompt in ([1, 2, 3], encode_prompt(model, [1, 2, 3])):
        found = list(generate(model, prompt, memory=memory, policy=policy, sampling=sampling))
        assert [token.id for token in found] == [token.id for token in wanted]
        assert [token.logprob for token in found] == pytest.approx([token.logprob for token in wanted], abs=1e-4)
