"""Bundles of one library: what its documents are exported to, and imported from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from retrieval.bundles.leaving import export_bundle
from retrieval.engine.workspace import Workspace
from retrieval.errors import catalogue_errors
from retrieval.ingest.intake import Intake
from retrieval.types.bundles import Arrived, Exported
from retrieval.types.records import Job
from storage.catalogue import Catalogue
from storage.catalogue.collections import checked_name


class Bundles:
    """Of the library as one person sees it. `whole`: the administrator's catalogue."""

    def __init__(self, library: Intake, workspace: Workspace, whole: Catalogue):
        self._library, self._workspace, self._whole = library, workspace, whole

    @catalogue_errors()
    def export_to(self, path: Path, *, collection_id: str | None = None) -> Exported:
        """Write all documents that may be read, or those of one collection, to a new file.

        Raises NotFound, InvalidRequest, DamagedMemory, NotEnoughSpace.
        """
        catalogue = self._workspace.catalogue
        if collection_id is not None:
            catalogue.collection(collection_id)
        chosen = catalogue.documents(collection_id=collection_id)
        return export_bundle(self._workspace, self._whole, chosen, Path(path))

    def import_from(
        self,
        path: Path,
        *,
        collection: str | None = None,
        reingest: bool = False,
        on_checked: Callable[[int], None] = lambda documents: None,
        run_job: Callable[[Job], Job] | None = None,
    ) -> Iterator[Arrived]:
        """Take in every document of a bundle, without reading it again; one result each, as they arrive.

        `collection`: all go there, instead of to collections named as they were. `reingest`: read the originals with
        this model (`run_job` runs a job to its end). `on_checked` is told the number of documents once the whole file
        was found right. Raises ForeignBundle, InvalidRequest for a name of which nothing can be kept, NotEnoughSpace
        and `storage.bundle.BadBundle`: then nothing was changed.
        """
        # The model's libraries take seconds to import.
        from retrieval.bundles.arriving import import_bundle, read_originals
        from retrieval.index.rare_terms import note_terms

        path = Path(path)
        with catalogue_errors():
            if collection is not None:
                checked_name(collection)
            if not reingest:
                for arrived in import_bundle(self._workspace, path, collection=collection, on_checked=on_checked):
                    if arrived.document_id is not None:
                        note_terms(self._workspace.with_catalogue(self._whole), arrived.document_id)
                    yield arrived
                return
        run = run_job or (lambda job: self._library.run_job(job.id))

        def read(file: Path, source: str, into: str | None) -> Job:
            job = self._library.submit(file, source=source, collection=into)
            return run(job) if job.active else job

        yield from read_originals(self._workspace, path, collection=collection, read=read)
