"""Numbers recorded from the published implementation (epfml/landmark-attention at d963e50; see
tests/golden/README.md)."""

from pathlib import Path

import numpy as np
import pytest
import torch

from model.attention.grouped_softmax import fold_far_blocks
from model.checkpoint.config import LandmarkConfig
from model.checkpoint.landmark_model import LandmarkModel
from tests.model.attention.general_form import grouped_softmax
from tests.tiny_model import golden_model

GOLDEN = Path(__file__).parents[2] / "golden"
TINY = GOLDEN / "tiny_mf7"


def load(path: Path) -> dict[str, torch.Tensor]:
    with np.load(path) as data:
        return {name: torch.from_numpy(data[name]) for name in data.files}


@pytest.mark.parametrize("case", sorted(path.stem for path in (GOLDEN / "softmax").glob("*.npz")))
def test_grouped_softmax_gives_the_recorded_weights_and_gradients(case: str) -> None:
    data = load(GOLDEN / "softmax" / f"{case}.npz")
    scores = data["scores"].float().requires_grad_()
    visible, landmark = data["visible"].bool(), data["is_landmark"].bool()
    weights = grouped_softmax(
        scores, visible.expand_as(scores)[:, 0], landmark.expand_as(scores)[:, 0, 0] if landmark.dim() > 2 else landmark
    )
    torch.testing.assert_close(weights, data["weights"].float(), atol=1e-5, rtol=1e-5)
    (weights * data["upstream_grad"]).sum().backward()
    torch.testing.assert_close(scores.grad, data["grad_scores"].float(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("block", [8, 16])
def test_the_folded_form_gives_the_recorded_weights(block: int) -> None:
    data = load(GOLDEN / "softmax" / f"causal_block{block}.npz")
    weights = fold_far_blocks(data["scores"].float(), block).softmax(-1)
    torch.testing.assert_close(weights, data["weights"].float(), atol=1e-5, rtol=1e-5)


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), targets[:, 1:].flatten())


def run(model: LandmarkModel, ids: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    context = model.context()
    context.weights = []
    return model.logits(model.encode(ids, context)), context.weights


def test_the_training_forward_gives_recorded_logits_losses_attention_and_gradients() -> None:
    data = load(TINY / "train_forward.npz")
    model = golden_model().train()
    ids = data["input_ids"].long()
    hidden: list[torch.Tensor] = []
    hooks = [
        layer.register_forward_hook(lambda _m, _i, out: hidden.append(out))
        for layer in [model.backbone.model.embed_tokens, *model.backbone.model.layers[:-1], model.backbone.model.norm]
    ]
    logits, weights = run(model, ids)
    for hook in hooks:
        hook.remove()
    torch.testing.assert_close(logits, data["logits"], atol=1e-4, rtol=0)
    for layer, state in enumerate(hidden):
        torch.testing.assert_close(state, data[f"hidden_{layer}"], atol=1e-4, rtol=0)
    for layer, weight in enumerate(weights):
        torch.testing.assert_close(weight, data[f"attn_{layer}"], atol=1e-5, rtol=0)
    loss = loss_of(logits, ids)
    torch.testing.assert_close(loss, data["loss_all"].view(()).float(), atol=1e-5, rtol=0)
    raw = data["raw_ids"].long()
    kept = logits[ids != model.config.landmark_token_id].view(*raw.shape, -1)
    torch.testing.assert_close(loss_of(kept, raw), data["loss_skip_landmarks"].view(()).float(), atol=1e-5, rtol=0)
    loss.backward()
    for name, weight in model.backbone.named_parameters():
        torch.testing.assert_close(weight.grad, data[f"grad.{name}"], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("variant", ["no_final_landmark", "final_landmark"])
def test_a_text_that_fills_its_blocks_gives_recorded_logits(variant: str) -> None:
    data = load(TINY / "train_forward_exact_multiple.npz")
    logits, _ = run(golden_model(), data[f"input_ids_{variant}"].long())
    torch.testing.assert_close(logits, data[f"logits_{variant}"], atol=1e-4, rtol=0)


def test_config_survives_the_checkpoint(tmp_path: Path) -> None:
    from model.checkpoint.load import load_backbone

    model = golden_model()
    model.save(tmp_path)
    again = load_backbone(tmp_path, device="cpu")
    assert again.config == model.config == LandmarkConfig.from_dict(model.config.to_dict())
    assert again.identity() == model.identity()
