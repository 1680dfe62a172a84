"""Keys of document titles, for search.

The subject of a document is often named in its title alone: the block about the climate of Greenland does not say
Greenland. So the keys of a title's tokens are kept, and every block and sentence of the document is matched as if it
contained the title (`late_interaction`).

Axes: Q question tokens, W weighed memory layers, G KV heads, D head dim, T tokens of a title, X documents.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from model.checkpoint.landmark_model import LandmarkModel
from model.inference.prefill import prefill, title_ids
from model.scoring.late_interaction import token_matches
from retrieval.engine.workspace import Workspace
from retrieval.index.terms import described_name
from storage.catalogue import Catalogue
from storage.records import Document


def keep_title(workspace: Workspace, document: Document) -> None:
    """Store the keys of the document's title, if the model ranks by tokens. Takes its own slot at the model.

    Raises `storage.errors.NotFound` if the document was deleted meanwhile.
    """
    loaded = workspace.loaded(any_memory=True)
    if loaded.model.config.ranks_by_tokens and document.fingerprint == loaded.fingerprint.digest:
        with workspace.scheduler.for_ingestion():
            keys_TWGD = title_keys(loaded.model, described_name(document.title, document.source))
        workspace.catalogue.put_title_keys(document.id, document.title, keys_TWGD.numpy().astype("<f2").tobytes())


def title_keys(model: LandmarkModel, title: str) -> Tensor:
    """keys_TWGD (float16, CPU) of the title's tokens in the weighed layers, before rotation."""
    ids, title_itself = title_ids(model, title)
    weighed = [model.memory_layers.index(layer) for layer in model.searched_layers]
    keys = [block.keys_YGLD[weighed][:, :, : block.num_tokens] for block in prefill(model, ids)]
    return torch.cat(keys, 2)[:, :, title_itself].permute(2, 0, 1, 3).half().cpu().contiguous()


class TitleMatches:
    """How well titles match one question; the keys of each title are fetched once."""

    def __init__(self, catalogue: Catalogue, queries_QWGD: Tensor, device: torch.device):
        self._catalogue, self._queries, self._device = catalogue, queries_QWGD, device
        self._matches_Q: dict[str, Tensor] = {}

    def of(self, document_ids: Sequence[str]) -> Tensor:
        """matches_QX (float32, CPU) of every question token in the title of each document; 0 without keys for it."""
        if new := [document_id for document_id in dict.fromkeys(document_ids) if document_id not in self._matches_Q]:
            self._matches_Q.update(zip(new, self._fetch(new).unbind(1), strict=True))
        found = [self._matches_Q[document_id] for document_id in document_ids]
        return torch.stack(found, 1) if found else torch.zeros(len(self._queries), 0)

    def _fetch(self, document_ids: Sequence[str]) -> Tensor:
        matches_QX = torch.zeros(len(self._queries), len(document_ids))
        kept = self._catalogue.title_keys(document_ids)
        if not kept:
            return matches_QX
        packed = [kept.get(document_id, b"") for document_id in document_ids]
        flat = torch.from_numpy(np.frombuffer(b"".join(packed), "<f2").astype(np.float32))
        keys_TWGD = flat.view(-1, *self._queries.shape[1:]).to(self._device)
        # Each token as if it were a block: titles are of any length.
        keys_WTGLD = [keys_TGD[:, :, None] for keys_TGD in keys_TWGD.unbind(1)]
        matches_QT = token_matches(self._queries, keys_WTGLD, torch.ones(len(keys_TWGD)))[..., 0].cpu()
        lengths_X = torch.tensor([len(each) for each in packed]) // (2 * self._queries[0].numel())
        title_T = torch.repeat_interleave(torch.arange(len(packed)), lengths_X)
        return matches_QX.scatter_reduce(1, title_T.expand_as(matches_QT), matches_QT, "amax")
