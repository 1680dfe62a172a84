"""What only a CUDA device can show; everything else of this package is tested on the CPU. Run with `pytest -m gpu`."""

import pytest
import torch

from model.attention.memory import InMemoryReader
from model.attention.selection import SelectionPolicy
from model.inference.generate import Sampling, generate
from model.inference.prefill import prefill
from model.inference.prompt import encode_prompt
from model.inference.session import LandmarkSession
from tests.tiny_model import FAMILIES, tiny_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_gpu_gives_the_logits_of_the_cpu(family: str) -> None:
    model = tiny_model(family).requires_grad_(False)
    ids = torch.randint(0, 256, (2, 100))
    expected = model(ids)
    torch.testing.assert_close(model.cuda()(ids.cuda()).cpu(), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("voters", ["token", "head", "group"])
def test_bfloat16_stays_near_float32(voters: str) -> None:
    model = tiny_model().requires_grad_(False).cuda()
    text, prompt = torch.randint(0, 256, (200,)).tolist(), torch.randint(0, 256, (20,)).tolist()
    # All blocks are read: what rounding does to a choice among near-equal blocks is not the subject here.
    policy = SelectionPolicy(top_k=99, voters=voters)  # type: ignore[arg-type]

    def logits() -> torch.Tensor:
        memory = InMemoryReader.from_blocks(model.memory_layers, list(prefill(model, text)))
        return model.logits(LandmarkSession(model, memory=memory, policy=policy).feed(prompt).hidden_BTE[0]).float()

    exact = logits()
    model.bfloat16()
    error = (logits() - exact).abs().max() / exact.abs().max()
    assert error < 0.05


def test_prefill_holds_one_window_however_long_the_text() -> None:
    model = tiny_model(window_blocks=8, context_blocks=4).requires_grad_(False).cuda()

    def peak(tokens: int) -> int:
        torch.cuda.reset_peak_memory_stats()
        for _ in prefill(model, [7] * tokens):
            pass
        return torch.cuda.max_memory_allocated()

    peak(500)
    assert peak(20_000) < 1.1 * peak(2_000)


def test_decoding_copies_only_the_chosen_token_to_the_host() -> None:
    model = tiny_model().requires_grad_(False).cuda()
    memory = InMemoryReader.from_blocks(model.memory_layers, list(prefill(model, [5] * 300)))
    stream = LandmarkSession(model, memory=memory, policy=SelectionPolicy(top_k=4))
    stream.feed([1, 2, 3])
    torch.cuda.synchronize()
    # "error" raises at every implicit synchronisation, so a hidden copy inside a forward pass fails here.
    ids = torch.tensor([[9]], device="cuda")
    context = model.context(reader=memory, policy=SelectionPolicy(top_k=4))
    torch.cuda.set_sync_debug_mode("error")
    try:
        model.encode(ids, context)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_the_same_blocks_are_found_on_both_devices() -> None:
    model = tiny_model().requires_grad_(False)
    blocks = list(prefill(model, torch.randint(0, 256, (2_000,)).tolist()))
    queries = encode_prompt(model, [1, 2, 3, 4]).queries_YHQD
    on_cpu = InMemoryReader.from_blocks(model.memory_layers, blocks).search(
        2, queries[-1].view(1, 2, 1, -1, model.head_dim), 8
    )
    on_gpu = InMemoryReader.from_blocks(model.memory_layers, blocks, device="cuda").search(
        2, queries[-1].view(1, 2, 1, -1, model.head_dim).cuda(), 8
    )
    assert len(set(on_cpu.flatten().tolist()) & set(on_gpu.flatten().tolist())) >= 7
    tokens = [
        t.id
        for t in generate(
            model,
            [1, 2, 3],
            memory=InMemoryReader.from_blocks(model.memory_layers, blocks),
            sampling=Sampling(max_tokens=5),
        )
    ]
    model.cuda()
    memory = InMemoryReader.from_blocks(model.memory_layers, blocks, device="cuda")
    assert [t.id for t in generate(model, [1, 2, 3], memory=memory, sampling=Sampling(max_tokens=5))] == tokens
