"""Inference with block memory against the recordings of the published implementation: selections, logits, greedy
tokens."""

import json

import numpy as np
import pytest
import torch

from model.attention.selection import SelectionPolicy
from model.inference.session import LandmarkSession
from tests.tiny_model import GOLDEN, golden_model

CASES = json.loads((GOLDEN / "memory_cases.json").read_text())


@pytest.mark.parametrize("name", sorted(CASES))
def test_reading_in_windows_gives_recorded_selections_logits_and_tokens(name: str) -> None:
    case = CASES[name]
    with np.load(GOLDEN / f"memory_{name}.npz") as archive:
        data = {key: torch.from_numpy(archive[key]) for key in archive.files}
    model = golden_model(landmark_in_loss=case["include_landmark_in_loss"]).requires_grad_(False)
    policy = SelectionPolicy(top_k=case["top_k"], voters="head" if case["offload"] else "token", positions="paper")
    stream = LandmarkSession(model, policy=policy, window_blocks=case["window"] // model.config.block_size)

    def check_selections(prefix: str, reads: tuple) -> None:
        for read in reads:
            wanted = data[f"{prefix}_layer{read.layer}"].long()
            ids_HQS = read.ids_BHQS[0]
            if policy.voters == "head":
                assert torch.equal(ids_HQS, ids_HQS[:, :1].expand_as(ids_HQS)), "one choice a head and pass"
                ids_HQS = ids_HQS[:, :1]
            assert torch.equal(ids_HQS.reshape(wanted.shape), wanted), f"{prefix} layer {read.layer}"

    fed = stream.feed(data["raw_prompt"].tolist())
    torch.testing.assert_close(model.logits(fed.hidden_BTE[0]), data["prompt_logits"], atol=1e-4, rtol=0)
    for number, reads in enumerate(fed.selections):
        check_selections(f"sel_chunk{number}", reads)
    row = model.logits(fed.hidden_BTE[0][fed.next_row(model.config.landmark_in_loss)])
    torch.testing.assert_close(row, data["first_next_token_logits"].view(-1), atol=1e-4, rtol=0)
    token = int(row.argmax())
    for step, wanted in enumerate(data["generated"].tolist()):
        assert token == wanted
        if step == len(data["gen_logits"]):
            break
        fed = stream.feed([token])
        check_selections(f"sel_step{step}", fed.selections[-1])
        row = model.logits(fed.hidden_BTE[0][fed.next_row(model.config.landmark_in_loss)])
        torch.testing.assert_close(row, data["gen_logits"][step], atol=1e-4, rtol=0)
        token = int(row.argmax())
