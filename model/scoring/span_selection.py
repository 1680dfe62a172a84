"""Where an answer begins and ends in stored blocks: logits of their tokens, and the best spans.

Axes: Q question tokens, W weighed memory layers, G KV heads, D head dim, C blocks, L tokens in a block (landmark last),
E all weighed layers and heads concatenated, S sentences, T tokens of a sentence.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from model.scoring.late_interaction import key_parts, ordinary_tokens
from model.scoring.span_head import SpanHead


def span_logits(span_queries_2WGD: Tensor, keys_WCGLD: Sequence[Tensor], lengths_C: Tensor) -> Tensor:
    """logits_2CL of every token for being the first and the last of the answer: the product of span query and key.

    `span_queries_2WGD`: the queries of the prompt's last token and of the end token after it
    (`LandmarkConfig.points_at_answers`). Landmarks and padding get -inf.
    """
    count, _, length, _ = keys_WCGLD[0].shape
    products = sum(queries @ keys.float().T for queries, keys in key_parts(span_queries_2WGD, keys_WCGLD))
    assert isinstance(products, Tensor)
    logits_2CL = products.view(2, count, length)
    return logits_2CL.masked_fill(~ordinary_tokens(lengths_C, length, logits_2CL.device), -torch.inf)


@torch.no_grad()
def span_head_logits(
    head: SpanHead,
    queries_QWGD: Tensor,
    span_queries_2WGD: Tensor,
    keys_WCGLD: Sequence[Tensor],
    lengths_C: Tensor,
) -> Tensor:
    """logits_2CL as `span_logits` gives them, from the model's span head."""
    device = head.key.weight.device
    keys_CLE = torch.stack([keys_CGLD.float() for keys_CGLD in keys_WCGLD], 1).permute(0, 3, 1, 2, 4).flatten(2)
    valid_CL = ordinary_tokens(lengths_C, keys_CLE.shape[1], device)
    queries_QE, span_queries_2E = (x.float().flatten(1).to(device) for x in (queries_QWGD, span_queries_2WGD))
    mask_Q = torch.ones(len(queries_QE), dtype=torch.bool, device=device)
    logits_12CL, _ = head(
        keys_CLE.to(device)[None], valid_CL[None], queries_QE[None], mask_Q[None], span_queries_2E[None]
    )
    found: Tensor = logits_12CL[0]
    return found


def best_spans(logits_2ST: Tensor, longest: int = 24) -> tuple[Tensor, Tensor, Tensor]:
    """sums_S of both logits, first_S and last_S of the best span of at most `longest` tokens in each row.

    The sum is -inf where there is no token.
    """
    starts_ST, ends_ST = logits_2ST
    reachable_STW = torch.nn.functional.pad(starts_ST, (longest - 1, 0), value=-torch.inf).unfold(-1, longest, 1)
    best_start_ST, offset_ST = reachable_STW.max(-1)
    sums_S, last_S = (best_start_ST + ends_ST).max(-1)
    first_S = last_S - (longest - 1) + offset_ST.gather(1, last_S[:, None])[:, 0]
    return sums_S, first_S, last_S
