"""A checkpoint on this machine as a writer, loaded when it is first needed.

`retrieval.writers.local.loaded_writer` says how it reads and writes; `retrieval.writers.local.guard` finds the share of
stored tokens that this checkpoint has to compute again.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from retrieval.errors import InvalidRequest, WriterError
from retrieval.writers.local.memory_files import DEFAULT_BUDGET_BYTES
from retrieval.writers.protocol import Cancelled, WriterKind, WriterPassage, WriterRequest, WriterToken, Written

if TYPE_CHECKING:
    from model.checkpoint.chat.few_bits import FewBits
    from retrieval.writers.local.guard import Agreement
    from retrieval.writers.local.loaded_writer import LoadedWriter


class LocalWriter:
    """Words answers with an ordinary instruct checkpoint, loaded by the first `write`.

    name: a folder or a name on the hub. memory_bytes: what may be kept in `home`, for all writers together. repair:
    the share to compute again; None: what the guard finds. few_bits: how its matrices are kept, if in fewer bits.
    reads_ahead: whether new documents are read before anybody asks. Thread-safe.
    """

    kind: WriterKind = "local"
    leaves_machine = False

    def __init__(
        self,
        name: str,
        *,
        home: Path,
        device: str | None = None,
        dtype: str | None = None,
        memory_bytes: int = DEFAULT_BUDGET_BYTES,
        repair: float | None = None,
        few_bits: FewBits | None = None,
        reads_ahead: bool = False,
    ) -> None:
        self._source, self.reads_ahead = name, reads_ahead
        self._home, self._device, self._dtype, self._few_bits = home, device, dtype, few_bits
        self._memory_bytes, self._repair = memory_bytes, repair
        self._lock = threading.Lock()
        self._loaded: LoadedWriter | None = None

    def loaded(self) -> LoadedWriter:
        """The checkpoint with its memory. Raises `WriterError`."""
        from model.checkpoint.load import load_chat_model
        from model.errors import ModelError
        from retrieval.writers.local.loaded_writer import loaded_writer

        with self._lock:
            if self._loaded is None:
                try:
                    model = load_chat_model(
                        self._source, device=self._device, dtype=self._dtype, few_bits=self._few_bits
                    )
                except (ModelError, OSError, RuntimeError) as error:
                    raise WriterError(self.name, str(error)) from error
                self._loaded = loaded_writer(model, self._home, self._memory_bytes)
            return self._loaded

    @property
    def name(self) -> str:
        """As in `Writer`: of a folder or a file only the last part; the rest is nobody's business."""
        path = Path(self._source)
        return path.name if path.is_absolute() or path.exists() else self._source

    @property
    def weights(self) -> int:
        """As in `Writer`: counted."""
        return int(self.loaded().model.num_weights)

    def agreement(self) -> Agreement:
        """How stored passages compare with passages read again; measured once for each checkpoint."""
        from retrieval.writers.local.guard import agreement_of

        return agreement_of(self.loaded())

    @property
    def repair(self) -> float:
        """The share of stored tokens that is computed again."""
        return self._repair if self._repair is not None else self.agreement().repair

    def write(self, request: WriterRequest, cancelled: Cancelled) -> Generator[WriterToken, None, Written]:
        """See `Writer.write`."""
        from model.errors import ModelError
        from retrieval.writers.local.loaded_writer import write_over

        loaded = self.loaded()
        try:
            return (yield from write_over(loaded, request, self.repair if request.passages else 0.0, cancelled))
        except ModelError as error:
            raise InvalidRequest(f"{self.name} cannot write this answer: {error}") from error

    def read_ahead(self, passages: Sequence[WriterPassage]) -> int:
        """Read and keep passages before anybody asks; returns how many were not kept before. Raises as `write`."""
        from model.errors import ModelError
        from retrieval.writers.local.loaded_writer import passage_ids

        loaded, new = self.loaded(), 0
        try:
            for passage in passages:
                _, stored = loaded.segment(passage.document_id, passage_ids(loaded.model, [passage])[0])
                new += not stored
        except ModelError as error:
            raise InvalidRequest(f"{self.name} cannot read this passage: {error}") from error
        return new
