"""The frame in which a checkpoint's keys are compared with the encoder's states.

The start of the default model writes keys as the encoder's states in an orthogonal frame (`init_from_encoder`). That
frame is made of eigenvectors, whose signs and order differ between machines and samples of text. So training that goes
on from a checkpoint finds the frame of that checkpoint: the orthogonal matrix that brings the states nearest to the
keys (orthogonal Procrustes, Schönemann 1966). A wrong one would turn all keys round before anything is learned.

Axes: J raw tokens of a block, E all heads' dimensions together.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from model.checkpoint.landmark_model import LandmarkModel
from model.inference.prefill import prefill
from research.train.convert.init_from_encoder import Encoder
from research.train.data.teacher_states import TeacherStates


@torch.inference_mode()
def frame_of(model: LandmarkModel, encoder: Encoder, texts: Sequence[NDArray[np.uint16]]) -> Tensor:
    """frame_EE (float32, orthogonal) such that `states @ frame_EE.T` come as near to the keys of the memory layer, by
    the sum of their cosines over all tokens of `texts`, as any frame can."""
    teacher, size = TeacherStates(encoder, model.tokenizer), model.config.tokens_per_block
    together_EE = torch.zeros(teacher.width, teacher.width, dtype=torch.float64)
    for ids in texts:
        pieces = [ids[start : start + size].tolist() for start in range(0, len(ids), size)]
        blocks = [block.keys_YGLD[-1].transpose(0, 1).flatten(1) for block in prefill(model, ids.tolist())]
        for piece, keys_LE, (states_JE, _) in zip(pieces, blocks, teacher.of(pieces), strict=True):
            keys_JE = normalize(keys_LE[: len(piece)].double().cpu(), dim=-1)
            together_EE += normalize(states_JE.double(), dim=-1).T @ keys_JE
    left_EE, _, right_EE = torch.linalg.svd(together_EE)
    frame_EE: Tensor = (left_EE @ right_EE).T.float().contiguous()
    return frame_EE
