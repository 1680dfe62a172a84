"""A growing text: raw tokens in, hidden states out; it handles landmarks and windows.

Under *library* positions all tokens stay in the local window, and a stored memory is read. Under *paper* positions a
memory that grows (`TextMemory`) is that of the text itself: finished blocks move into it after each window, as in the
published implementation, so that the local window starts with the unfinished block. A memory that does not grow, such
as a library, precedes the text, which stays in the local window.

Axes: B batch (1 but for `SelectionPolicy.left_out`), T tokens fed, E hidden width, G KV heads, N blocks, L tokens in a
block, D head dim.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from model.attention.memory import InMemoryReader, MemoryReader, Selection, TextMemory, in_text_order
from model.attention.selection import SelectionPolicy
from model.checkpoint.backbones import DynamicCache
from model.checkpoint.landmark_model import LandmarkModel, cached, on_device
from model.errors import ModelError
from model.inference.prompt import EncodedPrompt


@dataclass(frozen=True, eq=False)
class StepOutput:
    """Result of one `feed`: hidden states of all its tokens, landmarks included."""

    hidden_BTE: Tensor
    landmarks: tuple[bool, ...]
    selections: tuple[tuple[Selection, ...], ...]
    """One tuple of reads per forward pass, that is per window."""

    def next_row(self, landmark_in_loss: bool) -> int:
        """The row whose output chooses the next token, counted from the end: the last one, unless that is a landmark
        that was not trained to predict; then the last ordinary token."""
        return self.predicting_rows(landmark_in_loss)[-1] - len(self.landmarks)

    def predicting_rows(self, landmark_in_loss: bool) -> list[int]:
        """For each raw token fed, the row whose output chooses the token after it."""
        raw = [row for row, landmark in enumerate(self.landmarks) if not landmark]
        last = len(self.landmarks) - 1
        return [row + 1 if landmark_in_loss and row < last and self.landmarks[row + 1] else row for row in raw]

    def selections_of(self, row: int) -> tuple[Selection, ...]:
        """What one token read, counted from the end of the last forward pass if negative."""
        return tuple(read.one_query(row) for read in self.selections[-1])


class LandmarkSession:
    """One growing text over an optional memory.

    window_blocks: blocks of one forward pass in the memory of one text (default: the model's). The text is read once
    for each row of the policy's `left_out`, side by side.
    """

    def __init__(
        self,
        model: LandmarkModel,
        *,
        memory: MemoryReader | None = None,
        policy: SelectionPolicy,
        window_blocks: int | None = None,
    ) -> None:
        self.model = model
        self.policy = policy
        self.window_tokens = (window_blocks or model.config.window_blocks) * model.config.block_size
        if policy.of_one_text:
            memory = InMemoryReader(range(model.num_layers)) if memory is None else in_text_order(memory)
        self.memory = memory
        self._grows = policy.of_one_text and isinstance(memory, TextMemory)
        self._rows = max(1, len(policy.left_out))
        assert self._rows == 1 or not self._grows, "a memory that grows holds one text"
        self._cache = DynamicCache()
        self._rotated: dict[int, tuple[int, Tensor]] = {}  # `LandmarkContext.rotated_keys` of the local window
        self._local = 0  # tokens in the local window, landmarks included

    def feed(self, raw_ids: Sequence[int]) -> StepOutput:
        """Read more raw tokens, at least one.

        Raises `ContextTooLong` when the window has no room, `ModelError` for a landmark id.
        """
        return self._feed(raw_ids, self.policy)

    def feed_apart(self, raw_ids: Sequence[int]) -> StepOutput:
        """Read as many of the raw tokens (at least one) as one pass can, with the result of feeding them one by one.

        A token that fills its block is read alone, since its landmark chooses blocks together with it.
        """
        room = self.model.config.tokens_per_block - self._local % self.model.config.block_size
        if room == 1 or self._grows:
            return self.feed(raw_ids[:1])
        return self._feed(raw_ids[: room - 1], replace(self.policy, each_query=True))

    @torch.no_grad()
    def _feed(self, raw_ids: Sequence[int], policy: SelectionPolicy) -> StepOutput:
        if not len(raw_ids):
            raise ModelError("nothing to read: give at least one token.")
        ids = self.model.with_landmarks(raw_ids, filled=self._local % self.model.config.block_size)
        hidden, selections = [], []
        for piece in self._pieces(ids):
            stored = self.memory.num_blocks if self.memory is not None else 0
            self.model.check_window(self._local + len(piece), policy, stored)
            context = self.model.context(reader=self.memory, policy=policy)
            context.rotated_keys = self._rotated
            hidden.append(self.model.encode(on_device([piece] * self._rows, self.model.device), context, self._cache))
            selections.append(tuple(context.selections))
            self._local += len(piece)
            if self._grows:
                self._move_finished_blocks()
        return StepOutput(torch.cat(hidden, 1), self._landmarks(ids), tuple(selections))

    @torch.no_grad()
    def resume(self, prompt: EncodedPrompt) -> StepOutput:
        """Begin with a prompt that was read without a memory, over one that does not grow.

        Same result as `feed` of its tokens; only the layers from the first memory layer on run again.
        """
        assert self._local == 0 and not self._grows, "a prompt comes first, in one window"
        model, ids = self.model, prompt.tokens_with_landmarks
        model.check_window(len(ids), self.policy, self.memory.num_blocks if self.memory is not None else 0)
        for layer, (keys, values) in enumerate(prompt.cache):
            self._cache.update(keys, values, layer)
        context = model.context(reader=self.memory, policy=self.policy)
        layers = range(len(prompt.cache), model.num_layers)
        hidden_BTE = model.final_norm(model.run_layers(prompt.hidden_BTE, layers, context, self._cache))
        self._local = len(ids)
        return StepOutput(hidden_BTE, self._landmarks(ids), (tuple(context.selections),))

    def _landmarks(self, ids: Sequence[int]) -> tuple[bool, ...]:
        return tuple(token == self.model.config.landmark_token_id for token in ids)

    def _pieces(self, ids: list[int]) -> list[list[int]]:
        """With the memory of one text, full windows on the block grid, the first completing the one begun; else one."""
        if not self._grows:
            return [ids]
        first = self.window_tokens - self._local
        return [ids[:first]] + [ids[at : at + self.window_tokens] for at in range(first, len(ids), self.window_tokens)]

    def _move_finished_blocks(self) -> None:
        size = self.model.config.block_size
        finished = self._local // size
        if not finished:
            return
        memory, layers, rest = self.memory, {}, DynamicCache()
        assert isinstance(memory, TextMemory)
        cut = finished * size
        for layer in range(self.model.num_layers):
            keys, values = cached(self._cache, layer)
            if layer in memory.layers:
                keys_BGNLD, values_BGNLD = (kv[:, :, :cut].unflatten(2, (finished, size)) for kv in (keys, values))
                layers[layer] = keys_BGNLD, values_BGNLD
            rest.update(keys[:, :, cut:], values[:, :, cut:], layer)
        memory.append(layers, torch.full((1, finished), self.model.config.tokens_per_block, device=self.model.device))
        self._cache, self._rotated, self._local = rest, {}, self._local - finished * size
