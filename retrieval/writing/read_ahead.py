"""A new document read by the writer before anybody asks about it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from retrieval.engine.workspace import Workspace
from retrieval.errors import CairnError
from retrieval.query.passage_builder import PassageBuilder
from retrieval.types.records import Scope
from retrieval.writers.local.local_writer import LocalWriter
from retrieval.writers.protocol import Writer
from retrieval.writing.found_passages import writer_passages
from retrieval.writing.whole_passages import all_segments
from storage.errors import NotFound

logger = logging.getLogger(__name__)


def read_ahead(
    workspace: Workspace,
    builder: PassageBuilder,
    open_writer: Callable[[], Writer | None],
    document_id: str,
    between: Callable[[], None],
) -> None:
    """Have a local writer that is asked to read ahead keep all segments of a document; others do nothing.

    Questions go first. `between` is called before each segment. What goes wrong is logged: the document is complete
    without it, and the writer reads what it needs when it is asked.
    """
    try:
        writer = open_writer()
        if not (isinstance(writer, LocalWriter) and writer.reads_ahead):
            return
        for passage in writer_passages(all_segments(workspace, builder, Scope((document_id,)))):
            between()
            with workspace.scheduler.for_ingestion():
                writer.read_ahead([passage])
    except NotFound:
        logger.info("document %s was deleted while the writer read it", document_id)
    except CairnError as error:
        logger.warning("the writer did not read document %s ahead: %s", document_id, error)
