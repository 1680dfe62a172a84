"""The frames in which chosen blocks get positions, against grouped softmax over keys that are placed one by one."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from model.attention.context import LandmarkContext
from model.attention.landmark_attention import landmark_attention
from model.attention.memory import InMemoryReader
from model.attention.rotary import rotary_tables, rotate
from model.attention.selection import POSITIONS, Positions, SelectionPolicy
from model.inference.session import LandmarkSession
from tests.model.attention.general_form import grouped_softmax
from tests.tiny_model import tiny_model

SIZE, STORED, QUERIES, DIM = 4, 6, 6, 8
ROTARY = LlamaRotaryEmbedding(LlamaConfig(hidden_size=DIM, num_attention_heads=1))


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def placed(x_KD: Tensor, positions: list[int]) -> Tensor:
    cos, sin = rotary_tables(ROTARY, 0, 200, x_KD)
    return rotate(x_KD, cos[positions], sin[positions])


def frame(positions: Positions, chosen: list[int]) -> tuple[list[int], int]:
    """Slots of the chosen blocks, and that of the local window, in words of the docstring
    of `model.attention.positions`, for k = len(chosen)."""
    k = len(chosen)
    return {
        "paper": ([n + (block >= STORED - k) for n, block in enumerate(chosen)], k + 1),
        "library": ([0] * k, 2),
    }[positions]


@pytest.mark.parametrize("chosen", [[0, 2], [1, 5], [4, 5]])
@pytest.mark.parametrize("positions", POSITIONS)
def test_chosen_blocks_are_read_where_their_frame_puts_them(
    positions: Positions, chosen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    query, key, value = (drawn(1, 1, QUERIES, DIM, seed=seed) for seed in (1, 2, 3))
    memory = InMemoryReader([0])
    keys, values = (drawn(1, 1, STORED, SIZE, DIM, seed=seed) for seed in (4, 5))
    memory.append({0: (keys, values)}, torch.full((1, STORED), SIZE - 1))
    ids = torch.tensor(chosen).expand(1, 1, QUERIES, -1)
    for module in ("memory", "positions"):  # which searches under library positions, and under the paper's
        monkeypatch.setattr(f"model.attention.{module}.choose_blocks", lambda *_, **__: ids)
    policy = SelectionPolicy(top_k=len(chosen), voters="token", positions=positions)
    context = LandmarkContext(SIZE, ROTARY, None, memory, policy)
    out, _ = landmark_attention(SimpleNamespace(layer_idx=0), query, key, value, None, 0.4, landmark=context)

    slots, local = frame(positions, chosen)
    near = [local * SIZE + n for n in range(QUERIES)]
    q_QD, k_KD = placed(query[0, 0], near), placed(key[0, 0], near)
    far_KD = keys[0, 0, chosen].flatten(0, 1)
    far_scores = q_QD @ placed(far_KD, [slot * SIZE + n for slot in slots for n in range(SIZE)]).T
    scores = torch.cat((far_scores, q_QD @ k_KD.T), -1) * 0.4
    total = scores.shape[-1]
    visible = torch.ones(QUERIES, total, dtype=torch.bool).tril(total - QUERIES)
    landmark = torch.arange(total) % SIZE == SIZE - 1
    weights = grouped_softmax(scores[None, None], visible[None], landmark[None])[0, 0]
    wanted = weights @ torch.cat((values[0, 0, chosen].flatten(0, 1), value[0, 0]))
    torch.testing.assert_close(out[0, :, 0], wanted, atol=1e-5, rtol=1e-5)


def test_older_blocks_are_chosen_by_the_logit_of_slot_0_and_the_newest_by_their_distance() -> None:
    query, key = drawn(1, 1, 1, DIM, seed=1), drawn(1, 1, 1, DIM, seed=2)
    keys = drawn(1, 1, STORED, SIZE, DIM, seed=4)
    memory = InMemoryReader([0])
    memory.append({0: (keys, keys)}, torch.full((1, STORED), SIZE - 1))
    policy = SelectionPolicy(top_k=2, voters="token", positions="paper")
    context = LandmarkContext(SIZE, ROTARY, None, memory, policy)
    landmark_attention(SimpleNamespace(layer_idx=0), query, key, key, None, 1.0, landmark=context)
    slots = [0, 0, 0, 0, 1, 2]  # the two newest have slots of their own
    landmarks = placed(keys[0, 0, :, -1], [slot * SIZE + SIZE - 1 for slot in slots])
    logits = landmarks @ placed(query[0, 0], [3 * SIZE])[0]
    (read,) = context.selections
    assert read.ids_BHQS.flatten().tolist() == logits.topk(2).indices.sort().values.tolist()


def test_reading_all_stored_blocks_equals_one_pass_over_the_text() -> None:
    model = tiny_model().requires_grad_(False)
    raw = torch.randint(0, 250, (6 * 7 + 5,), generator=torch.Generator().manual_seed(0)).tolist()
    whole = model(torch.tensor([model.with_landmarks(raw)]))[0]
    session = LandmarkSession(model, policy=SelectionPolicy(top_k=99, positions="paper"), window_blocks=2)
    logits = torch.cat([model.logits(session.feed(piece).hidden_BTE[0]) for piece in (raw[:10], raw[10:33], raw[33:])])
    torch.testing.assert_close(logits, whole, atol=1e-5, rtol=1e-5)
