"""The rotated keys of a growing local window: each key is rotated once, however many tokens follow.

Axes: B batch, G KV heads, K local keys, D head dim.
"""

from collections.abc import Callable

from torch import Tensor

from model.attention.growing_axis import GrowingAxis
from model.attention.rotary import rotate


class RotatedKeys:
    """By layer. Valid for one window: make a new one when keys leave its front."""

    def __init__(self) -> None:
        self._layers: dict[int, tuple[int, GrowingAxis]] = {}  # layer -> position of the first key, rotated_BGKD

    def of(
        self, layer: int, key_BGKD: Tensor, start: int, before: int, table: Callable[[int, int], tuple[Tensor, Tensor]]
    ) -> Tensor:
        """rotated_BGKD of all keys, the first at position `start`; the first `before` were in an earlier pass.

        table: cos and sin of the positions from one to before another.
        """
        kept_from, kept = self._layers.get(layer, (start, GrowingAxis(2)))
        if kept_from != start or kept.length != before:
            kept, before = GrowingAxis(2), 0
        self._layers[layer] = start, kept
        cos, sin = table(start + before, start + key_BGKD.shape[2])
        kept.append(rotate(key_BGKD[:, :, before:], cos, sin), None)
        return kept.view()
