"""The span head: where the answer to a question is in stored blocks.

It sees what attention sees, the keys of the blocks' tokens and the queries of the question, and nothing else: the text
is not read again. A key knows only what comes *before* its token. The head compares each key with the question's
queries and then looks at the tokens on both sides with a few convolutions within the block (kernels of 7 tokens,
depthwise separable; arXiv 1804.09541, section 2.2). So it can tell that the words around a name match the question
while the name itself does not, which a product of two vectors cannot.

Axes: Q questions, C blocks, L tokens in a block (landmark last), T tokens of the question, E width of a key (all heads
of the weighed layers concatenated), D width of the head, F features, N all blocks (Q x C).
"""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import gelu, normalize

from model.errors import ModelError
from model.scoring.late_interaction import cosines, question_weights

FILE = "pointing.safetensors"
KERNEL = 7
_FEATURES = 6
_STORED_NAMES = {
    "span_query": "pointers",
    "mix": "mixed",
    "span_logits": "points",
    "no_answer_logits": "nothing",
    "logit_scale": "sharpness",
    "raw_weights": "raw_shares",
    "conv": "around",
}
"""Parameters that have another name in the file."""


class SpanHead(nn.Module):
    """Logits of every stored token for being the first and the last one of the answer."""

    def __init__(self, key_width: int, width: int, layers: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.key_width, self.width, self.layers = key_width, width, layers
        self.key = nn.Linear(key_width, width)
        self.query = nn.Linear(key_width, width)
        self.span_query = nn.Linear(2 * key_width, width)
        self.mix = nn.Linear(4 * width + _FEATURES, width)
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.ModuleList([ConvBlock(width, dropout) for _ in range(layers)])
        self.span_logits = nn.Linear(width, 2)
        self.no_answer_logits = nn.Linear(width, 2)
        self.dropout = nn.Dropout(dropout)
        self.logit_scale = nn.Parameter(torch.tensor(10.0))
        self.raw_weights = nn.Parameter(torch.full((2,), 0.3))

    def forward(
        self,
        keys_QCLE: Tensor,
        valid_QCL: Tensor,
        queries_QTE: Tensor,
        question_mask_QT: Tensor,
        span_queries_Q2E: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """span_logits_Q2CL, -inf where there is no ordinary token, and no_answer_logits_Q2.

        Keys before rotation and queries in the frame of `MemoryReader.search`; `span_queries_Q2E` are the queries of
        the prompt's last token and of an end token after it. One softmax over all tokens and "no answer" gives the
        chance that the answer begins (ends) there.
        """
        shape = valid_QCL.shape
        raw_QCL2 = torch.einsum("qcle,qpe->qclp", keys_QCLE, span_queries_Q2E)
        features_QCLF, aligned_QCLT = self._matches(keys_QCLE, valid_QCL, queries_QTE, question_mask_QT)
        features_QCLF = torch.cat((features_QCLF, 0.1 * raw_QCL2), -1)
        key_QCLD = self.key(self.dropout(normalize(keys_QCLE, dim=-1)))
        query_QCLD = torch.einsum("qclt,qtd->qcld", aligned_QCLT, self.query(normalize(queries_QTE, dim=-1)))
        span_query_QD = self.span_query(normalize(span_queries_Q2E, dim=-1).flatten(1))
        mixed = (key_QCLD, query_QCLD, key_QCLD * query_QCLD, key_QCLD * span_query_QD[:, None, None], features_QCLF)
        x_NLD = self.norm(self.mix(torch.cat(mixed, -1))).flatten(0, 1)
        valid_NL1 = valid_QCL.flatten(0, 1)[..., None]
        for block in self.blocks:
            x_NLD = block(x_NLD, valid_NL1)
        logits_QCL2 = self.span_logits(x_NLD).unflatten(0, shape[:2]) + raw_QCL2 * self.raw_weights
        whole_QD = _mean_plus_max(x_NLD.unflatten(0, shape[:2]), valid_QCL)
        logits_Q2CL = logits_QCL2.permute(0, 3, 1, 2).masked_fill(~valid_QCL[:, None], -torch.inf)
        return logits_Q2CL, self.no_answer_logits(whole_QD)

    def _matches(
        self, keys_QCLE: Tensor, valid_QCL: Tensor, queries_QTE: Tensor, question_mask_QT: Tensor
    ) -> tuple[Tensor, Tensor]:
        """features_QCLF, how well each token and its block match the question (see `late_interaction`), and
        aligned_QCLT, a softmax over the question's tokens by likeness to a token."""
        masked_Q11T = ~question_mask_QT[:, None, None]
        weights_Q1T = question_weights(queries_QTE, question_mask_QT)[:, None]
        cosines_QCLT = cosines(queries_QTE, keys_QCLE.flatten(1, 2)).mT.reshape(*valid_QCL.shape, -1)
        cosines_QCLT = cosines_QCLT.masked_fill(masked_Q11T, -1.0)
        above_QCLT = cosines_QCLT.clamp_min(0)
        best_QCT = above_QCLT.masked_fill(~valid_QCL[..., None], 0.0).amax(2)
        # The gradient of the root is infinite at 0, as for a block without tokens.
        block_QC = (best_QCT.square() * weights_Q1T).sum(-1).clamp_min(1e-12).sqrt()
        features = (
            cosines_QCLT.amax(-1),
            (above_QCLT.square() * weights_Q1T[:, None]).sum(-1),
            4 * (above_QCLT * weights_Q1T[:, None]).amax(-1),
            block_QC[..., None].expand_as(valid_QCL),
        )
        logits_QCLT = (cosines_QCLT * self.logit_scale).masked_fill(masked_Q11T, -torch.inf)
        return torch.stack(features, -1), logits_QCLT.softmax(-1)

    def save(self, folder: Path) -> None:
        """Write the weights beside those of the network, in 16 bit."""
        folder.mkdir(parents=True, exist_ok=True)
        weights = {
            _stored(name): weight.detach().cpu().to(torch.bfloat16) for name, weight in self.state_dict().items()
        }
        save_file(weights, folder / FILE)


def load_head(file: Path, *, key_width: int, width: int, layers: int) -> SpanHead:
    """The head of a checkpoint, in float32.

    Raises `ModelError` for a file that is missing, damaged or of another size.
    """
    head = SpanHead(key_width, width, layers)
    try:
        weights = load_file(file)
        head.load_state_dict({name: weights.pop(_stored(name)).float() for name in head.state_dict()} | weights)
    except (FileNotFoundError, KeyError, SafetensorError, RuntimeError) as error:
        raise ModelError(f"{file} cannot be used ({error}); copy the checkpoint again.") from error
    return head.eval()


class ConvBlock(nn.Module):
    """A depthwise convolution over neighbouring tokens and an MLP, with a residual."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.conv = nn.Conv1d(width, width, KERNEL, padding=KERNEL // 2, groups=width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_NLD: Tensor, valid_NL1: Tensor) -> Tensor:
        mixed_NLD = self.conv((self.norm(x_NLD) * valid_NL1).transpose(1, 2)).transpose(1, 2)
        delta_NLD: Tensor = self.dropout(self.down(gelu(self.up(mixed_NLD))))
        return x_NLD + delta_NLD


def _stored(name: str) -> str:
    return ".".join(_STORED_NAMES.get(part, part) for part in name.split("."))


def _mean_plus_max(x_QCLD: Tensor, valid_QCL: Tensor) -> Tensor:
    """whole_QD over all ordinary tokens."""
    valid_QCL1 = valid_QCL[..., None]
    mean_QD = (x_QCLD * valid_QCL1).sum((1, 2)) / valid_QCL1.sum((1, 2)).clamp_min(1)
    return mean_QD + x_QCLD.masked_fill(~valid_QCL1, -1e4).amax((1, 2))
