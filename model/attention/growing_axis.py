"""A tensor that grows: what a memory and a local window are kept in."""

import torch
from torch import Tensor


class GrowingAxis:
    """A tensor that grows along one axis; capacity doubles, so that n appends copy O(n) rather than O(n^2)."""

    def __init__(self, axis: int) -> None:
        self._axis = axis
        self._room: Tensor | None = None
        self.length = 0

    def view(self) -> Tensor:
        assert self._room is not None, "nothing stored yet"
        return self._room.narrow(self._axis, 0, self.length)

    def append(self, new: Tensor, capacity: int | None) -> None:
        axis, added = self._axis, new.shape[self._axis]
        if capacity is not None:
            both = new if self._room is None else torch.cat((self.view(), new), axis)
            self._room = both.narrow(axis, max(0, both.shape[axis] - capacity), min(capacity, both.shape[axis])).clone()
            self.length = self._room.shape[axis]
            return
        if self._room is None:
            self._room = new.clone()
        elif self.length + added > self._room.shape[axis]:
            shape = list(self._room.shape)
            shape[axis] = 2 * (self.length + added)
            room = self._room.new_empty(shape)
            room.narrow(axis, 0, self.length).copy_(self.view())
            self._room = room
        self._room.narrow(axis, self.length, added).copy_(new)
        self.length += added
