"""How much work a token of an answer is: it must not grow with the answer before it."""

from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoTokenizer

from model.attention import context as attention_context
from model.attention.memory import InMemoryReader
from model.attention.selection import SelectionPolicy
from model.inference.generate import Sampling, TextStream, generate
from model.inference.prefill import prefill
from model.inference.session import LandmarkSession
from tests.tiny_model import byte_tokenizer, tiny_model


@pytest.mark.parametrize("positions", ["library", "paper"])
def test_every_local_key_is_rotated_once(monkeypatch: pytest.MonkeyPatch, positions: str) -> None:
    rotated: list[int] = []

    def counted(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        rotated.append(x.shape[-2])
        return plain(x, cos, sin)

    plain = attention_context.rotate
    monkeypatch.setattr(attention_context, "rotate", counted)
    model = tiny_model(block_size=64)
    session = LandmarkSession(model, policy=SelectionPolicy(positions=positions))  # type: ignore[arg-type]
    session.feed(range(20))
    for token in range(30):
        session.feed([token])
    assert sum(rotated) == model.num_layers * 50


@pytest.mark.parametrize("positions", ["library", "paper"])
def test_keys_that_were_rotated_before_give_what_rotating_all_of_them_gives(positions: str) -> None:
    """Across full blocks, which leave the local window under paper positions, and so move it."""
    model = tiny_model().requires_grad_(False)
    outputs = []
    for forgetful in (False, True):
        policy = SelectionPolicy(top_k=2, positions=positions)  # type: ignore[arg-type]
        session = LandmarkSession(model, policy=policy, window_blocks=1)
        steps = []
        for piece in ([1, 2, 3], *([token] for token in range(30)), [4, 5]):
            if forgetful:
                session._rotated = {}
            steps.append(session.feed(piece).hidden_BTE[0])
        outputs.append(torch.cat(steps))
    assert torch.equal(*outputs)


class HostWaits(TorchDispatchMode):
    """Counts operations that give a number to the host."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def test_the_host_waits_for_a_token_at_most_once() -> None:
    """On a CPU a list of numbers is no operation, one number is; test_gpu.py has the same on a GPU."""
    model = tiny_model().requires_grad_(False)
    memory = InMemoryReader.from_blocks(model.memory_layers, list(prefill(model, [5] * 300)))
    stream = generate(model, [1, 2, 3], memory=memory, sampling=Sampling(max_tokens=20))
    next(stream)
    device_waits = HostWaits()
    with device_waits:
        assert list(stream)
    assert device_waits.count == 0


def test_the_text_of_an_answer_is_decoded_once_a_token() -> None:
    tokenizer, decoded = byte_tokenizer(), Counter[str]()

    def decode(ids) -> str:  # type: ignore[no-untyped-def]
        decoded["tokens"] += len(ids)
        return str(tokenizer.decode(ids))

    stream, tokens = TextStream(decode, ("###",)), tokenizer("It has stood since then, " * 40)["input_ids"]
    text = "".join(stream.add(token)[0] for token in tokens) + stream.flush()
    assert text == "It has stood since then, " * 40
    assert decoded["tokens"] <= 4 * len(tokens)


SHIPPED = Path(__file__).parents[3] / "model" / "default"
TOKENIZERS = {"bytes": byte_tokenizer(), "shipped": AutoTokenizer.from_pretrained(SHIPPED)}


@given(st.sampled_from(sorted(TOKENIZERS)), st.lists(st.integers(0, 10**6), max_size=40), st.text(max_size=40))
def test_pieces_of_text_make_the_text_of_all_tokens(kind: str, numbers: list[int], text: str) -> None:
    tokenizer = TOKENIZERS[kind]

    def decode(ids) -> str:  # type: ignore[no-untyped-def]
        return str(tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    tokens = [number % len(tokenizer) for number in numbers] + tokenizer(text)["input_ids"]
    stream = TextStream(decode, ())
    assert "".join(stream.add(token)[0] for token in tokens) + stream.flush() == decode(tokens)


@given(st.text("ab€", min_size=1, max_size=60), st.text("ab€", min_size=1, max_size=3))
def test_a_stop_string_ends_the_text_wherever_tokens_end(text: str, stop: str) -> None:
    tokenizer = TOKENIZERS["bytes"]
    stream, given_out = TextStream(lambda ids: str(tokenizer.decode(ids)), (stop,)), ""
    for token in tokenizer(text)["input_ids"]:
        piece, stopped = stream.add(token)
        given_out += piece
        if stopped:
            break
    else:
        given_out += stream.flush()
    assert given_out == text.split(stop)[0]
