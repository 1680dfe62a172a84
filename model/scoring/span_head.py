"""The pointing head: where in stored blocks the answer to a question stands.

It sees what attention sees, the keys of the blocks' tokens and the queries of the question, and nothing else: the text
is not read again. A key says what a token is, as known from what stands *before* it. The head compares each key with
the question's queries and then looks at the tokens around it, also behind it, with a few convolutions within the block
(kernels of 7 tokens, depthwise separable; arXiv 1804.09541, section 2.2). So it can tell that the words around a name
match the question while the name itself does not, which is what a product of two vectors cannot.

Axes: Q questions, C blocks, L tokens in a block (landmark last), T tokens of the question, E width of a key (all heads
of the weighed layers laid end to end), D width of the head, F features.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import gelu, normalize

from model.errors import ModelError

FILE = "pointing.safetensors"
KERNEL = 7
_FEATURES = 6


class SpanHead(nn.Module):
    """Logits of every stored token for being the first and the last one of the answer."""

    def __init__(self, key_width: int, width: int, layers: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.key_width, self.width, self.layers = key_width, width, layers
        self.key = nn.Linear(key_width, width)
        self.query = nn.Linear(key_width, width)
        self.pointers = nn.Linear(2 * key_width, width)
        self.mixed = nn.Linear(4 * width + _FEATURES, width)
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.ModuleList([_Around(width, dropout) for _ in range(layers)])
        self.points = nn.Linear(width, 2)
        self.nothing = nn.Linear(width, 2)
        self.dropout = nn.Dropout(dropout)
        self.sharpness = nn.Parameter(torch.tensor(10.0))
        self.raw_shares = nn.Parameter(torch.full((2,), 0.3))

    def forward(
        self, keys_QCLE: Tensor, there_QCL: Tensor, queries_QTE: Tensor, asked_QT: Tensor, pointers_Q2E: Tensor
    ) -> tuple[Tensor, Tensor]:
        """points_Q2CL, -inf where there is no ordinary token, and nothing_Q2, the logits of "it stands nowhere here".

        Keys before rotation and queries in the frame of `MemoryReader.search`; `pointers_Q2E` are the queries of the
        prompt's last token and of an end token behind it. One softmax over all tokens and nothing gives the chance
        that the answer begins (ends) there.
        """
        shape = there_QCL.shape
        raw_QCL2 = torch.einsum("qcle,qpe->qclp", keys_QCLE, pointers_Q2E)
        features_QCLF, aligned_QCLT = _matches(keys_QCLE, there_QCL, queries_QTE, asked_QT, self.sharpness)
        features_QCLF = torch.cat((features_QCLF, 0.1 * raw_QCL2), -1)
        key_QCLD = self.key(self.dropout(normalize(keys_QCLE, dim=-1)))
        asked_QCLD = torch.einsum("qclt,qtd->qcld", aligned_QCLT, self.query(normalize(queries_QTE, dim=-1)))
        pointer_QD = self.pointers(normalize(pointers_Q2E, dim=-1).flatten(1))
        mixed = (key_QCLD, asked_QCLD, key_QCLD * asked_QCLD, key_QCLD * pointer_QD[:, None, None], features_QCLF)
        x_NLD = self.norm(self.mixed(torch.cat(mixed, -1))).flatten(0, 1)
        there_NL1 = there_QCL.flatten(0, 1)[..., None]
        for block in self.blocks:
            x_NLD = block(x_NLD, there_NL1)
        points_QCL2 = self.points(x_NLD).unflatten(0, shape[:2]) + raw_QCL2 * self.raw_shares
        whole_QD = _mean_and_most(x_NLD.unflatten(0, shape[:2]), there_QCL)
        points_Q2CL = points_QCL2.permute(0, 3, 1, 2).masked_fill(~there_QCL[:, None], -torch.inf)
        return points_Q2CL, self.nothing(whole_QD)

    def save(self, folder: Path) -> None:
        """Write the weights beside those of the network, in 16 bit."""
        folder.mkdir(parents=True, exist_ok=True)
        weights = {name: weight.detach().cpu().to(torch.bfloat16) for name, weight in self.state_dict().items()}
        save_file(weights, folder / FILE)


def load_head(file: Path, *, key_width: int, width: int, layers: int) -> SpanHead:
    """The head of a checkpoint, in float32. Raises `ModelError` for a file that is missing, damaged or of another
    size."""
    head = SpanHead(key_width, width, layers)
    try:
        weights: dict[str, Any] = load_file(file)
        head.load_state_dict({name: weight.float() for name, weight in weights.items()})
    except (FileNotFoundError, SafetensorError, RuntimeError) as error:
        raise ModelError(f"{file} cannot be used ({error}); copy the checkpoint again.") from error
    return head.eval()


class _Around(nn.Module):
    """What stands around each token: one depthwise convolution and one hidden layer, with a residual."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.around = nn.Conv1d(width, width, KERNEL, padding=KERNEL // 2, groups=width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_NLD: Tensor, there_NL1: Tensor) -> Tensor:
        around_NLD = self.around((self.norm(x_NLD) * there_NL1).transpose(1, 2)).transpose(1, 2)
        return x_NLD + self.dropout(self.down(gelu(self.up(around_NLD))))


def _matches(
    keys_QCLE: Tensor, there_QCL: Tensor, queries_QTE: Tensor, asked_QT: Tensor, sharpness: Tensor
) -> tuple[Tensor, Tensor]:
    """features_QCLF, how well each token and its block match the question (cf. `model.scoring.late_interaction`), and
    aligned_QCLT, the softmax over the question's tokens that a token is most like."""
    share_QT = queries_QTE.norm(dim=-1) * asked_QT
    share_QT = share_QT / share_QT.sum(-1, keepdim=True).clamp_min(1e-6)
    cosines_QCLT = torch.einsum("qcle,qte->qclt", normalize(keys_QCLE, dim=-1), normalize(queries_QTE, dim=-1))
    cosines_QCLT = cosines_QCLT.masked_fill(~asked_QT[:, None, None], -1.0)
    above_QCLT = cosines_QCLT.clamp_min(0)
    best_QCT = above_QCLT.masked_fill(~there_QCL[..., None], 0.0).amax(2)
    # Of a block without tokens the root would have an infinite gradient.
    block_QC = (best_QCT.square() * share_QT[:, None]).sum(-1).clamp_min(1e-12).sqrt()
    features = (
        cosines_QCLT.amax(-1),
        (above_QCLT.square() * share_QT[:, None, None]).sum(-1),
        4 * (above_QCLT * share_QT[:, None, None]).amax(-1),
        block_QC[..., None].expand_as(there_QCL),
    )
    logits_QCLT = (cosines_QCLT * sharpness).masked_fill(~asked_QT[:, None, None], -torch.inf)
    return torch.stack(features, -1), logits_QCLT.softmax(-1)


def _mean_and_most(x_QCLD: Tensor, there_QCL: Tensor) -> Tensor:
    """whole_QD: mean over all ordinary tokens plus their maximum."""
    there_QCL1 = there_QCL[..., None]
    mean_QD = (x_QCLD * there_QCL1).sum((1, 2)) / there_QCL1.sum((1, 2)).clamp_min(1)
    return mean_QD + x_QCLD.masked_fill(~there_QCL1, -1e4).amax((1, 2))
