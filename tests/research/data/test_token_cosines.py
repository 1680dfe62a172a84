"""Training scores what serving scores: the same cosines, weights and sentence scores."""

import torch

from model.scoring.late_interaction import best_matches, score, token_matches
from research.train.data.token_cosines import TokenCosines, cosines, question_weights

L, LAYERS, GROUPS, D = 6, 2, 3, 4
LENGTHS_C = torch.tensor([5, 5, 2, 5])


def made() -> tuple[torch.Tensor, list[torch.Tensor], torch.Tensor, torch.Tensor]:
    """queries_QWGD and keys_WCGLD as serving has them; the same as queries_QE and keys_CLE, as training has them."""
    torch.manual_seed(0)
    queries_QWGD = torch.randn(4, LAYERS, GROUPS, D) * torch.tensor([0.1, 1.0, 3.0, 1.0]).view(-1, 1, 1, 1)
    keys_WCGLD = [torch.randn(len(LENGTHS_C), GROUPS, L, D) for _ in range(LAYERS)]
    keys_CLE = torch.stack(keys_WCGLD, 1).permute(0, 3, 1, 2, 4).flatten(2)
    return queries_QWGD, keys_WCGLD, queries_QWGD.flatten(1), keys_CLE


def test_cosines_and_weights_of_training_are_the_matches_of_serving() -> None:
    queries_QWGD, keys_WCGLD, queries_QE, keys_CLE = made()
    mask_1Q = torch.ones(1, len(queries_QE), dtype=torch.bool)
    weights_Q = question_weights(queries_QE[None], mask_1Q)[0]
    matches_QCL = weights_Q.sqrt()[:, None, None] * cosines(queries_QE, keys_CLE.flatten(0, 1)).view(4, -1, L)
    served_QCL = token_matches(queries_QWGD, keys_WCGLD, LENGTHS_C)
    valid_QCL = served_QCL > -torch.inf
    assert torch.equal(valid_QCL[0], torch.arange(L) < LENGTHS_C[:, None])
    torch.testing.assert_close(matches_QCL[valid_QCL], served_QCL[valid_QCL])


def test_scores_of_training_are_those_of_serving_also_among_other_questions() -> None:
    queries_QWGD, keys_WCGLD, queries_QE, keys_CLE = made()
    queries_QTE = torch.stack((queries_QE, torch.randn(queries_QE.shape)))
    mask_QT = torch.tensor([[True] * 4, [True, False, True, False]])
    trained = TokenCosines.of(queries_QTE, mask_QT, keys_CLE[:, :-1])
    served_QCL = token_matches(queries_QWGD, keys_WCGLD, LENGTHS_C)
    # Every block is one sentence: its score is that of its tokens.
    valid_CJ = torch.arange(L - 1) < LENGTHS_C[:, None]
    sentence_CJ = torch.arange(len(LENGTHS_C))[:, None].where(valid_CJ, -1)
    torch.testing.assert_close(trained.sentence_scores(sentence_CJ)[0], score(served_QCL))
    # A block's score in training is the mean of what search takes the root mean square of.
    best_QC, weights_Q = best_matches(served_QCL), question_weights(queries_QTE, mask_QT)[0]
    positive_QN = trained.cosines_FNJ[:4].masked_fill(~valid_CJ, -1.0).amax(-1) >= 0
    linear_C = (best_QC * weights_Q.sqrt()[:, None]).sum(0)
    every_C = positive_QN.all(0)
    assert every_C.any()
    torch.testing.assert_close(trained.block_scores(valid_CJ)[0][every_C], linear_C[every_C])
