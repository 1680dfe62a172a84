"""What keys in fewer bits, or in fewer dimensions, do to search: each alone, against keys in 16 bit, in one run.

    python benchmarks/quality/fewer_bits.py --data FOLDER [--documents 350] [--questions 500] [--model model/default]

Blocks, questions and gold as in retrieval_quality.py; landmarks and titles stay in 16 bit, so the same blocks are
proposed. For every form of keys: bytes a token of keys with their scales, the error (its norm as a share of that of the
keys), recall of a gold block, how often the first block is the same as with 16 bit, and how much of the best eight.

Axes: N blocks, G KV heads, L tokens in a block (landmark last), D head dim, C proposed blocks, Q question tokens.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks"), str(ROOT / "benchmarks" / "quality")]

import machine
import numpy as np
import torch
from retrieval_quality import Blocks, StoredKeys, development, drawn, stored_keys
from torch import Tensor

from model.checkpoint.landmark_model import LandmarkModel
from model.checkpoint.load import load_backbone
from model.inference.prompt import encode_prompt
from model.scoring.late_interaction import best_matches, block_scores, token_matches
from model.training.data.examples import TokenQuestion
from retrieval.query.question import mean_query
from retrieval.query.search import FEWEST_PROPOSED
from storage.kv.quantise import dequantise, dequantise_channels, quantise, quantise_channels

BEST = 8
Form = Callable[[Tensor, Tensor], Tensor]
"""keys_NGLD as they would be read back, from keys_NGLD and valid_NGL."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with qa/")
    parser.add_argument("--model", default="model/default")
    parser.add_argument("--documents", type=int, default=350)
    parser.add_argument("--questions", type=int, default=500)
    arguments = parser.parse_args()
    print(json.dumps(machine.described(torch.get_num_threads())))
    model = load_backbone(arguments.model, device="cpu", dtype=torch.float32)
    data, _ = development(model, arguments.data)
    questions = drawn(data, arguments.documents, arguments.questions)
    blocks = Blocks(model, data)
    gold = [blocks.gold(question) for question in questions]
    stored = stored_keys(model, data, blocks)
    asked = [proposed(model, stored, question) for question in questions]
    print(f"{len(blocks.ids)} blocks, {len(questions)} questions", flush=True)
    print(f"{'':34}bytes    error   @1     @8     @20    same first  same of best {BEST}")
    reference: list[list[int]] = []
    for name, (size, form) in forms(model).items():
        rows, error = read_back(stored, form)
        ranked = [ranking(stored, rows, *each) for each in asked]
        reference = reference or ranked
        recall = [np.mean([bool(g & set(r[:k])) for g, r in zip(gold, ranked, strict=True)]) for k in (1, BEST, 20)]
        pairs = list(zip(reference, ranked, strict=True))
        first = np.mean([one[0] == other[0] for one, other in pairs])
        best = np.mean([len(set(one[:BEST]) & set(other[:BEST])) / BEST for one, other in pairs])
        figures = "  ".join(f"{figure:.3f}" for figure in (error, *recall, first, best))
        print(f"{name:34}{size * model.num_kv_heads:6.0f}   {figures}", flush=True)


def forms(model: LandmarkModel) -> dict[str, tuple[float, Form]]:
    """Bytes that a head's key of one token takes, and what becomes of it."""
    width, length = model.head_dim, model.config.tokens_per_block

    def channels(bits: int) -> tuple[float, Form]:
        def form(keys_NGLD: Tensor, valid_NGL: Tensor) -> Tensor:
            codes_PB, scales_PD = quantise_channels(keys_NGLD.flatten(0, 1), valid_NGL.flatten(0, 1), bits)
            return dequantise_channels(codes_PB, scales_PD, keys_NGLD.shape[2], bits).view(keys_NGLD.shape)

        return bits * width / 8 + 2 * width / length, form

    def tokens(bits: int) -> tuple[float, Form]:
        def form(keys_NGLD: Tensor, _: Tensor) -> Tensor:
            steps = 2 ** (bits - 1)
            scales_NGL1 = (keys_NGLD.abs().amax(-1, keepdim=True) / steps).half().float().clamp_min(1e-6)
            return ((keys_NGLD / scales_NGL1).floor().clamp(-steps, steps - 1) + 0.5) * scales_NGL1

        return bits * width / 8 + 2, form

    def whole(keys_NGLD: Tensor, valid_NGL: Tensor) -> Tensor:
        return dequantise(*quantise(keys_NGLD, valid_NGL))

    return {
        "16 bit": (2 * width, lambda keys_NGLD, _: keys_NGLD),
        "int8, a scale for the block": (width + 4 / length, whole),
        **{f"{bits} bits, scales by channel": channels(bits) for bits in (4, 3, 2)},
        **{f"{bits} bits, scales by token": tokens(bits) for bits in (4, 3, 2)},
        **{f"{n} of {width} dimensions, 16 bit": (2 * n, of_dimensions(n)) for n in (3 * width // 4, width // 2)},
        f"{width // 2} dimensions, 4 bits": (width / 4 + width / length, of_dimensions(width // 2, channels(4)[1])),
    }


def of_dimensions(count: int, then: Form | None = None) -> Form:
    """Keys in the `count` directions of each head that hold most of them, perhaps in another form there."""

    def form(keys_NGLD: Tensor, valid_NGL: Tensor) -> Tensor:
        heads = []
        for keys_NLD, valid_NL in zip(keys_NGLD.unbind(1), valid_NGL.unbind(1), strict=True):
            there_XD = keys_NLD[valid_NL]
            basis_DE = torch.linalg.eigh(there_XD.T @ there_XD).eigenvectors[:, -count:]
            kept_NLE = keys_NLD @ basis_DE
            kept_NLE = kept_NLE if then is None else then(kept_NLE[:, None], valid_NL[:, None])[:, 0]
            heads.append(kept_NLE @ basis_DE.T)
        return torch.stack(heads, 1)

    return form


def read_back(stored: StoredKeys, form: Form) -> tuple[list[Tensor], float]:
    """Keys of every weighed layer in another form, and their error."""
    rows, wrong, all_of_it = [], 0.0, 0.0
    for keys_NGLD in stored.keys_WNGLD:
        token_L = torch.arange(keys_NGLD.shape[2])
        valid_NGL = (token_L < stored.lengths_N[:, None])[:, None].expand(-1, keys_NGLD.shape[1], -1)
        read_NGLD = form(keys_NGLD.float(), valid_NGL)
        wrong += float((read_NGLD - keys_NGLD)[valid_NGL].square().sum())
        all_of_it += float(keys_NGLD[valid_NGL].float().square().sum())
        rows.append(read_NGLD)
    return rows, (wrong / all_of_it) ** 0.5


def proposed(model: LandmarkModel, stored: StoredKeys, question: TokenQuestion) -> tuple[Tensor, Tensor, Tensor]:
    """queries_QWGD, the blocks C that landmarks propose, and titles_QC, the matches of their titles."""
    prompt = model.prompt_of(question.ids)
    queries_YHQD = encode_prompt(model, prompt.ids).queries_YHQD[:, :, prompt.question]
    scores_N = torch.einsum("ygd,ygnd->n", mean_query(model, queries_YHQD), stored.landmarks_YGND)
    proposed_C = scores_N.topk(min(FEWEST_PROPOSED, len(scores_N))).indices
    queries_QWGD = model.token_queries(queries_YHQD)
    of_X, at_C = stored.document_N[proposed_C].unique(return_inverse=True)
    titles_WXGTD = [titles_XGTD[of_X] for titles_XGTD in stored.titles_WXGTD]
    titles_QX = best_matches(token_matches(queries_QWGD, titles_WXGTD, stored.title_lengths_X[of_X]))
    return queries_QWGD, proposed_C, titles_QX[:, at_C]


def ranking(
    stored: StoredKeys, keys_WNGLD: list[Tensor], queries_QWGD: Tensor, proposed_C: Tensor, titles_QC: Tensor
) -> list[int]:
    """The best blocks by late interaction."""
    keys_WCGLD = [keys_NGLD[proposed_C] for keys_NGLD in keys_WNGLD]
    best_QC = best_matches(token_matches(queries_QWGD, keys_WCGLD, stored.lengths_N[proposed_C])).maximum(titles_QC)
    scores_C = block_scores(best_QC, stored.place_N[proposed_C])
    return proposed_C[scores_C.argsort(descending=True, stable=True)][:20].tolist()


if __name__ == "__main__":
    main()
