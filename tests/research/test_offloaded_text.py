"""A long text whose blocks lie in files is read as if they were in memory."""

from pathlib import Path

import pytest
import torch

from model.attention.memory import InMemoryReader, TextMemory
from model.attention.selection import SelectionPolicy, Voters
from model.inference.session import LandmarkSession, StepOutput
from research.offloaded_text import offloaded_text
from tests.tiny_model import tiny_model

TEXT = torch.randint(0, 250, (300,), generator=torch.Generator().manual_seed(3)).tolist()


@pytest.mark.parametrize("voters", ["token", "head", "all_heads"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_long_text_in_files_gives_bit_for_bit_what_it_gives_in_memory(
    tmp_path: Path, dtype: torch.dtype, voters: Voters
) -> None:
    model = tiny_model().to(dtype).requires_grad_(False)
    policy = SelectionPolicy(top_k=3, voters=voters, positions="paper")

    def read(memory: TextMemory) -> list[StepOutput]:
        session = LandmarkSession(model, memory=memory, policy=policy, window_blocks=2)
        return [session.feed(TEXT), *(session.feed([token]) for token in TEXT[:12])]

    held = read(InMemoryReader(range(model.num_layers)))
    with offloaded_text(model, tmp_path, cache_bytes=30_000) as memory:
        stored = read(memory)
        blocks = memory.num_blocks
        assert len(list(tmp_path.rglob("*.kv"))) > 10, "blocks lie in files"
    assert not list(tmp_path.iterdir())
    assert blocks == 312 // model.config.tokens_per_block
    for one, other in zip(held, stored, strict=True):
        assert torch.equal(one.hidden_BTE[0], other.hidden_BTE[0])
        assert one.selections[-1], "blocks were chosen"
        for mine, its in zip(one.selections, other.selections, strict=True):
            for a, b in zip(mine, its, strict=True):
                assert torch.equal(a.ids_BHQS, b.ids_BHQS) and torch.equal(a.gate_BHQS, b.gate_BHQS)
