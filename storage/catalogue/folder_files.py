"""What is remembered of one file below a followed folder."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert

from storage.catalogue.database.schema import folder_files
from storage.records import FolderFile


def write_folder_file(
    connection: Connection, folder_id: str, file: FolderFile, *, instead_of: str | None = None
) -> None:
    """In place of what was known of it, and of `instead_of` if it moved."""
    gone = {file.source} if instead_of is None else {file.source, instead_of}
    mine = folder_files.c.folder_id == folder_id
    connection.execute(delete(folder_files).where(mine, folder_files.c.source.in_(gone)))
    connection.execute(insert(folder_files).values(vars(file) | {"folder_id": folder_id}))
