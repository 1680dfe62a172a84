"""Followed folders: which file became which document. For the administrator only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Row, delete, func, insert, or_, select, update

from storage.catalogue.database import document_of, record_of, search_text, update_row, write_folder_file
from storage.catalogue.permissions import Repository
from storage.catalogue.properties import copy_properties_by_hand
from storage.catalogue.schema import documents, folder_files, folders, now
from storage.errors import NotFound
from storage.names import clean_name
from storage.records import Document, Folder, FolderFile, Removed


class FolderRepository(Repository):
    def folders(self) -> list[Folder]:
        """In the order in which they were first followed."""
        return [_folder(row) for row in self._rows(select(folders).order_by(folders.c.created_at, folders.c.id))]

    def folder(self, folder_id: str) -> Folder:
        """Raises `NotFound`."""
        return _folder(self._row(select(folders).where(folders.c.id == folder_id), "folder", folder_id))

    def put_folder(
        self, path: str, *, owner_id: str | None, collection: str | None, removed: Removed | None, watched: bool | None
    ) -> Folder:
        """The owner's folder with this path, made if new. None leaves a setting as it is."""
        given = {"collection": collection, "removed": removed, "watched": watched}
        row = {name: value for name, value in given.items() if value is not None} | {"path": path, "owner_id": owner_id}
        mine = (folders.c.path == path) & folders.c.owner_id.is_not_distinct_from(owner_id)
        with self._database.write() as connection:
            known = connection.execute(select(folders.c.id).where(mine)).scalar()
            put = insert(folders) if known is None else update(folders).where(folders.c.id == known)
            return _folder(connection.execute(put.values(row).returning(folders)).one())

    def forget_folder(self, folder_id: str) -> None:
        """Follow it no longer; its documents stay. Raises `NotFound`."""
        with self._database.write() as connection:
            if connection.execute(delete(folders).where(folders.c.id == folder_id)).rowcount == 0:
                raise NotFound("folder", folder_id)

    def note_run(self, folder_id: str, report: Mapping[str, Any]) -> None:
        """Record what a run just did."""
        with self._database.write() as connection:
            update_row(connection, folders, folder_id, last_run_at=now(), report=json.dumps(dict(report)))

    def folder_files(self, folder_id: str) -> list[FolderFile]:
        """In order of their sources."""
        chosen = select(folder_files).where(folder_files.c.folder_id == folder_id).order_by(folder_files.c.source)
        return [record_of(FolderFile, row) for row in self._rows(chosen)]

    def put_folder_file(self, folder_id: str, file: FolderFile, *, instead_of: str | None = None) -> None:
        """Remember a file, `instead_of` another one if it moved."""
        with self._database.write() as connection:
            write_folder_file(connection, folder_id, file, instead_of=instead_of)

    def forget_folder_file(self, folder_id: str, source: str) -> None:
        mine = (folder_files.c.folder_id == folder_id) & (folder_files.c.source == source)
        with self._database.write() as connection:
            connection.execute(delete(folder_files).where(mine))

    def num_files_of(self, document_id: str) -> int:
        """How many files, of all folders, became this document or are about to."""
        of_it = or_(folder_files.c.document_id == document_id, folder_files.c.next_document_id == document_id)
        return self._count(folder_files, of_it)

    def misnamed(self, folder_id: str) -> list[tuple[Document, str]]:
        """Documents of one file each that are not named after it, with that file's source."""
        alone = (
            select(folder_files.c.document_id)
            .where(folder_files.c.next_document_id.is_(None))
            .group_by(folder_files.c.document_id)
            .having(func.count() == 1)
        )
        chosen = (
            select(documents, folder_files.c.source.label("file_source"))
            .join(folder_files, folder_files.c.document_id == documents.c.id)
            .where(folder_files.c.folder_id == folder_id, documents.c.source != folder_files.c.source)
            .where(documents.c.id.in_(alone))
        )
        found = [(document_of(row), row.file_source) for row in self._rows(chosen)]
        return [(document, source) for document, source in found if document.source != _name_of(source)]

    def hand_over(self, old: str, new: str) -> None:
        """Give the next reading of a document the properties that people set by hand."""
        with self._database.write() as connection:
            copy_properties_by_hand(connection, old, new)

    def change_source(self, document_id: str, source: str) -> None:
        """The file that a document was made from has another name now."""
        source = _name_of(source)
        with self._database.write() as connection:
            title = connection.execute(select(documents.c.title).where(documents.c.id == document_id)).scalar()
            if title is not None:
                update_row(connection, documents, document_id, source=source, search_text=search_text(title, source))


def _name_of(source: str) -> str:
    return clean_name(source) or "unnamed"


def _folder(row: Row[Any]) -> Folder:
    return record_of(Folder, row, report=json.loads(row.report))
