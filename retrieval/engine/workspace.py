"""The shared state of a library: its folder, its catalogue, the model and the scheduler of the model.

- The home folder: cairn.sqlite3, kv/<document>/<shard>.kv, files/<document>.<kind>, pages/<document>/ (images),
  backups/. Memory, originals and sidecars may lie in a bucket instead (`blobs`).
- Opening loads neither the model nor any memory; `loaded()` does, once, at the first question or the first ingestion.
- A memory made by another model is refused there, before anything is read or written.
"""

from __future__ import annotations

import copy
import gc
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch

from model.threads import ThreadCount, Threads
from retrieval.engine.scheduler import Batcher, ModelScheduler
from retrieval.errors import InvalidRequest, MemoryMismatch
from storage.blobs.files import FileBlobs
from storage.blobs.protocol import Blobs
from storage.catalogue import Catalogue
from storage.fingerprint import UNKNOWN_MODEL, MemoryFingerprint
from storage.kv.format import KV_DTYPES, KVLayout
from storage.kv.store import KVBlockStore
from storage.records import Job

if TYPE_CHECKING:
    from model.checkpoint.landmark_model import LandmarkModel
    from model.reading.passage_encoder import PassageEncoder
    from model.reading.ranker import Ranker
    from model.reading.rows import JointRows
    from model.reading.span_reader import SpanReader
    from model.reading.two_readers import Reader

logger = logging.getLogger(__name__)

AUTO = "auto"
# Where answers are quoted, values only weigh how likely the quoted words are; search and sentences come from keys.
OF_FINDERS, OF_QUOTING_MODELS, OF_OTHER_MODELS = "k4", "k4v2", "bf16"

# A shard is what a crash can cost and what one commit makes durable.
SHARD_BYTES = 32 << 20

WRITER_FOLDER = "writer"  # below the home


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """The model with the store and the identity of the memory that it makes."""

    model: LandmarkModel
    fingerprint: MemoryFingerprint
    store: KVBlockStore
    ranker: Ranker
    reader: Reader | None = None
    encoder: PassageEncoder | None = None

    @property
    def layout(self) -> KVLayout:
        return self.store.layout

    @property
    def prefill_dtype(self) -> torch.dtype | None:
        """What prefill must round to so that windows read what the store would give back; memory in fewer bits is read
        back at shard borders only."""
        return self.layout.exact_dtype

    def blocks_per_shard(self, shard_bytes: int) -> int:
        """A multiple of the prefill window, so that a shard can be made (again) from the blocks before it."""
        window = self.model.config.window_blocks
        return max(1, self.layout.blocks_per_shard(shard_bytes) // window) * window


class _Model:
    """The model, loaded at the first need; one for all views of the library."""

    def __init__(self, model: LandmarkModel | Callable[[], LandmarkModel]):
        self._model, self.lock = model, threading.Lock()
        self.loaded: LoadedModel | None = None
        self.is_frozen = False

    def load(self) -> LandmarkModel:
        return cast("LandmarkModel", self._model if isinstance(self._model, torch.nn.Module) else self._model())


class Workspace:
    """Shared state of one open library. Thread-safe."""

    def __init__(
        self,
        home: Path,
        catalogue: Catalogue,
        model: LandmarkModel | Callable[[], LandmarkModel],
        *,
        kv_dtype: str,
        shard_bytes: int = SHARD_BYTES,
        threads: Threads = "auto",
        reader: bool = True,
        blobs: Blobs | None = None,
    ):
        self.home = home
        self.blobs: Blobs = FileBlobs(home) if blobs is None else blobs
        self.originals = self.blobs.inside("files")
        self.kv_folder, self.files_folder, self.pages_folder = home / "kv", home / "files", home / "pages"
        for folder in (self.kv_folder, self.files_folder, self.pages_folder):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.catalogue, self.database = catalogue, catalogue.database
        self._threads = ThreadCount(threads)
        self.scheduler = ModelScheduler(before_work=self._threads.apply, slots=self._questions_at_once)
        self._points_together = Batcher(self.scheduler, _points)
        self.kv_dtype, self.shard_bytes = kv_dtype, shard_bytes
        self.stranded_jobs: set[Job] = set()  # running, but their worker had to give up on the catalogue
        self._model, self._use_reader = _Model(model), reader
        # Deleting and verifying need the store's files but no model, hence no layout.
        self._files_only = KVBlockStore(
            self.kv_folder, KVLayout((0,), 1, 2, 1, "bf16"), fingerprint="", blobs=self.blobs.inside("kv")
        )

    @property
    def person(self) -> str:
        """Whose share of the machine this work uses; "" without accounts."""
        return self.catalogue.principal.user_id or ""

    def with_catalogue(self, catalogue: Catalogue) -> Workspace:
        """The same workspace with another view of the catalogue."""
        workspace = copy.copy(self)
        workspace.catalogue = catalogue
        return workspace

    @property
    def store(self) -> KVBlockStore:
        """For deleting, listing and verifying shard files; read blocks through `loaded().store`."""
        return self._model.loaded.store if self._model.loaded is not None else self._files_only

    @property
    def kv_dtype_in_use(self) -> str:
        """The number format of stored memory; "auto" as long as no model was loaded to decide it."""
        return self.kv_dtype if self._model.loaded is None else self._model.loaded.layout.dtype

    @property
    def model_if_loaded(self) -> LandmarkModel | None:
        """The model, if some question or ingestion needed it before."""
        return self._model.loaded.model if self._model.loaded else None

    def loaded(self, *, any_memory: bool = False) -> LoadedModel:
        """The model, loaded at the first call. Raises `MemoryMismatch` unless `any_memory` (for maintenance)."""
        with self._model.lock:
            if self._model.loaded is None:
                self._model.loaded = self._load()
        if not any_memory:
            self.check_memory()
        return self._model.loaded

    @property
    def opened(self) -> LoadedModel:
        """The model, where a snapshot is open: opening it has loaded the model and checked the memory."""
        assert self._model.loaded is not None
        return self._model.loaded

    def read_together(self, reader: SpanReader, rows: JointRows) -> torch.Tensor:
        """points_QKT2 of a question's rows (`SpanReader.points`), in one batch with others that wait."""
        return self._points_together((reader, rows))

    def _questions_at_once(self) -> int:
        """One on a GPU, which works on one at a time anyway."""
        model = self.model_if_loaded
        return 1 if model is None or model.device.type != "cpu" else self._threads.now

    def _load(self) -> LoadedModel:
        model = self._model.load()
        identity = model.identity(self.home / "weights.json")
        kv_dtype = self._kv_dtype_for(model, identity)
        layout = KVLayout(model.memory_layers, model.num_kv_heads, model.config.block_size, model.head_dim, kv_dtype)
        fields = {**identity, "kv_dtype": kv_dtype, "format_version": str(layout.format_version)}
        fingerprint = MemoryFingerprint(fields)
        store = KVBlockStore(self.kv_folder, layout, fingerprint.digest, blobs=self.blobs.inside("kv"))
        loaded = LoadedModel(model, fingerprint, store, *self._load_readers(model, identity["weights"]))
        # Model and packages are not collected: the first question would wait 0.2 s for the collector to walk them. Not
        # where something is frozen already: a second time would also freeze what earlier libraries left to collect.
        if gc.get_freeze_count() == 0:
            gc.freeze()
            self._model.is_frozen = True
        logger.info("model ready on %s, memory identity %s", model.device, fingerprint.digest)
        return loaded

    def _kv_dtype_for(self, model: LandmarkModel, identity: Mapping[str, str]) -> str:
        """The number format that was asked for. "auto": that of this model's memory in this home, so that it stays
        readable; where it has none the smallest that leaves its answers as they are
        (docs/decisions/0042-keys-in-four-bits-values-in-two.md)."""
        if self.kv_dtype == OF_FINDERS and model.is_causal_lm:
            raise InvalidRequest(
                f"{OF_FINDERS} stores no values, which this checkpoint needs: choose another kv_dtype."
            )
        if self.kv_dtype != AUTO:
            return self.kv_dtype
        for fingerprint in reversed(self.catalogue.fingerprints(in_use=True)):
            fields = fingerprint.fields
            if identity.items() <= fields.items() and fields.get("kv_dtype") in KV_DTYPES:
                return fields["kv_dtype"]
        if not model.is_causal_lm:
            return OF_FINDERS
        return OF_QUOTING_MODELS if model.config.quotes else OF_OTHER_MODELS

    def _load_readers(self, model: LandmarkModel, finder: str) -> tuple[Ranker, Reader | None, PassageEncoder | None]:
        """What the checkpoint brings along besides the model. It has no part in the memory, hence none in its identity.

        Without a reader the ranker decides by the search alone; the passage encoder lies in the folder of the reader
        whose words it shares.
        """
        from model.reading.passage_encoder import FOLDER as ENCODER
        from model.reading.passage_encoder import load_passage_encoder
        from model.reading.ranker import Ranker, reader_digest
        from model.reading.span_reader import FOLDER, load_span_reader, shipped_reader_for
        from model.reading.two_readers import SECOND, TwoReaders, load_reader

        if not model.source:
            return Ranker(), None, None
        ranker: Ranker = Ranker()
        reader: Reader | None = None
        encoder: PassageEncoder | None = None
        own = Path(model.source) / FOLDER
        if self._use_reader and own.is_dir():
            reader = load_reader(own, model.device)
        elif self._use_reader and not model.is_causal_lm and (shipped := shipped_reader_for(model.tokenizer)):
            reader = load_span_reader(shipped, model.device)  # whose own thresholds decide
        if isinstance(reader, TwoReaders) and (folder := own / SECOND / ENCODER).is_dir():
            encoder = load_passage_encoder(folder, reader.second)
        if Path(model.source).is_dir():
            ranker = Ranker.load(Path(model.source), finder, reader_digest(own))
            ranker = ranker if reader is not None else ranker.without_reader()
        return ranker, reader, encoder

    def check_memory(self) -> None:
        """Raises `MemoryMismatch`, naming the fields, if some document's memory was made by something else."""
        assert self._model.loaded is not None
        mine = self._model.loaded.fingerprint
        for other in self.catalogue.fingerprints(in_use=True):
            if other == UNKNOWN_MODEL:
                self.catalogue.give_unread(mine)
            elif fields := mine.differences(other):
                raise MemoryMismatch(fields, _values(fields, other, mine))

    def close(self) -> None:
        """Give back files and, as soon as nobody refers to it, the model."""
        self.store.close()
        self._model.loaded = None  # the workspace itself waits for the garbage collector: its scheduler refers to it
        if self._model.is_frozen:
            gc.unfreeze()  # frozen objects are never freed
            self._model.is_frozen = False


def _values(fields: list[str], stored: MemoryFingerprint, mine: MemoryFingerprint) -> str:
    """The differing values where they are short enough to mean something to a reader."""
    pairs = ((name, stored.fields.get(name, "none"), mine.fields.get(name, "none")) for name in fields)
    shown = [
        f"{name} is {old} in the memory and {new} here" for name, old, new in pairs if max(len(old), len(new)) <= 40
    ]
    return f"({'; '.join(shown)}.)" if shown else ""


def documents_folders(home: Path, document_id: str = "*") -> list[Path]:
    """The folders where writers keep what they made of one document, or of all."""
    return sorted(path for path in (home / WRITER_FOLDER).glob(f"*/{document_id}") if path.is_dir())


def _points(questions: Sequence[tuple[SpanReader, JointRows]]) -> list[torch.Tensor]:
    """In one pass for each of the readers."""
    points: dict[int, torch.Tensor] = {}
    for reader in dict.fromkeys(reader for reader, _ in questions):
        numbers = [number for number, (by, _) in enumerate(questions) if by is reader]
        points |= zip(numbers, reader.points([questions[number][1] for number in numbers]), strict=True)
    return [points[number] for number in range(len(questions))]
