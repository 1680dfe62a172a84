"""Properties of documents, and which documents meet conditions on them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, func, insert, not_, or_, select

from storage.catalogue.database import batches, search_part
from storage.catalogue.documents import one_document
from storage.catalogue.permissions import Repository, for_any_principal, in_readable_document, readable_documents
from storage.catalogue.schema import document_properties, documents
from storage.names import encodable, unknown_name
from storage.properties import (
    BUILT_IN,
    LONGEST_VALUE,
    USUAL,
    Condition,
    checked_property,
    checked_values,
    is_date,
    number_of,
)
from storage.records import Property

_COLUMNS: dict[str, ColumnElement[str]] = {
    "title": search_part(documents.c.search_text, 1),
    "source": search_part(documents.c.search_text, 2),
    "kind": func.lower(documents.c.kind),
    "added": func.lower(documents.c.added_at),
}
_COMPARED: dict[str, Callable[[Any, Any], ColumnElement[bool]]] = {
    "=": operator.eq,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


class PropertyRepository(Repository):
    @for_any_principal
    def set_properties(self, document_id: str, properties: Mapping[str, Sequence[str]]) -> None:
        """Set some properties by hand; one without values is taken away, also if the file states it.

        Raises `NotFound`, `PermissionDenied`, and `ValueError` for names and values that cannot be kept.
        """
        checked = {checked_property(name): values for name, values in properties.items()}
        kept = {name: checked_values(name, values) for name, values in checked.items()}
        with self._database.write() as connection:
            one_document(connection, self.principal, document_id, to_change=True)
            for name, values in kept.items():
                _delete(connection, document_id, document_properties.c.name == name)
                insert_values(connection, document_id, {name: values or [""]}, by_hand=True)

    def put_stated_properties(self, document_id: str, stated: Mapping[str, Sequence[str]]) -> None:
        """What the file says of itself, in place of what it said before; what was set by hand stays."""
        with self._database.write() as connection:
            one_document(connection, self.principal, document_id)
            _delete(connection, document_id, not_(document_properties.c.by_hand))
            mine = document_properties.c.document_id == document_id
            by_hand = set(connection.execute(select(document_properties.c.name).where(mine)).scalars())
            said = {name: values for name, values in stated.items() if name not in by_hand}
            insert_values(connection, document_id, said, by_hand=False)

    @for_any_principal
    def properties_of(self, document_ids: Sequence[str]) -> dict[str, list[Property]]:
        """By document, in order of names; what was taken away by hand is there with the value ""."""
        found: dict[str, list[Property]] = {}
        readable = in_readable_document(document_properties.c.document_id, self.principal)
        order = (document_properties.c.name, document_properties.c.position)
        with self._database.read() as connection:
            for batch in batches(document_ids):
                chosen = select(document_properties).where(document_properties.c.document_id.in_(batch), readable)
                for row in connection.execute(chosen.order_by(*order)):
                    found.setdefault(row.document_id, []).append(Property(row.name, row.value, row.by_hand))
        return found

    @for_any_principal
    def documents_where(self, conditions: Iterable[Condition]) -> set[str]:
        """Ids of the documents that the principal may read and that meet all of the conditions. Raises `ValueError` for
        a property that no document has."""
        conditions = list(conditions)
        named = {one.name for one in conditions} - {*BUILT_IN, *USUAL}
        readable = in_readable_document(document_properties.c.document_id, self.principal)
        kept = self._rows(select(document_properties.c.name).where(readable).distinct()) if named else ()
        if problem := unknown_name(named, {*BUILT_IN, *USUAL, *(row.name for row in kept)}, "property of a document"):
            raise ValueError(problem)
        chosen = select(documents.c.id).where(readable_documents(self.principal), *map(_meets, conditions))
        return {row.id for row in self._rows(chosen)}


def copy_properties_by_hand(connection: Connection, old: str, new: str) -> None:
    """Inside the caller's transaction: the new document has what people said of the old one."""
    mine = (document_properties.c.document_id == old) & document_properties.c.by_hand
    rows = [dict(row) for row in connection.execute(select(document_properties).where(mine)).mappings()]
    for name in {row["name"] for row in rows}:
        _delete(connection, new, document_properties.c.name == name)
    if rows:
        connection.execute(insert(document_properties), [row | {"document_id": new} for row in rows])


def insert_properties(connection: Connection, document_id: str, properties: Sequence[Property]) -> None:
    """Inside the caller's transaction, for a document that has none yet."""
    for by_hand in (True, False):
        found: dict[str, list[str]] = {}
        for one in properties:
            if one.by_hand is by_hand:
                found.setdefault(one.name, []).append(one.value)
        insert_values(connection, document_id, found, by_hand=by_hand)


def insert_values(
    connection: Connection, document_id: str, found: Mapping[str, Sequence[str]], *, by_hand: bool
) -> None:
    """Inside the caller's transaction: values by name, for properties that the document does not have yet."""
    rows = [
        {
            "document_id": document_id,
            "name": name,
            "position": position,
            "value": value,
            "folded": value.casefold(),
            "number": number_of(name, value),
            "by_hand": by_hand,
        }
        for name, values in found.items()
        for position, value in enumerate(encodable(value)[:LONGEST_VALUE] for value in values)
    ]
    if rows:
        connection.execute(insert(document_properties), rows)


def _delete(connection: Connection, document_id: str, which: ColumnElement[bool]) -> None:
    connection.execute(delete(document_properties).where(document_properties.c.document_id == document_id, which))


def _meets(wanted: Condition) -> ColumnElement[bool]:
    if wanted.operator == "!=":
        return not_(_meets(Condition(wanted.name, "=", wanted.value)))
    if wanted.name == "pages":
        return _COMPARED[wanted.operator](documents.c.num_pages, float(wanted.value))
    if wanted.name in _COLUMNS:
        return _compare_text(_COLUMNS[wanted.name], wanted, dated=wanted.name == "added")
    mine = and_(
        document_properties.c.document_id == documents.c.id,
        document_properties.c.name == wanted.name,
        document_properties.c.value != "",
        _meets_value(wanted),
    )
    return exists(select(document_properties.c.name).where(mine).correlate(documents))


def _meets_value(wanted: Condition) -> ColumnElement[bool]:
    folded, number = document_properties.c.folded, document_properties.c.number
    as_text = _compare_text(folded, wanted, dated=wanted.name == "date")
    if wanted.operator in ("=", "~"):
        return as_text
    value = number_of(wanted.name, wanted.value)
    if value is None:
        return as_text
    dates = and_(number.is_(None), folded.like("____-__%"), _compare_text(folded, wanted, dated=True))
    return or_(and_(number.is_not(None), _COMPARED[wanted.operator](number, value)), dates)


def _compare_text(column: ColumnElement[str], wanted: Condition, *, dated: bool) -> ColumnElement[bool]:
    """Dates as far as the condition writes them."""
    if wanted.operator == "~":
        return column.contains(wanted.value, autoescape=True)
    if (dated or wanted.operator != "=") and is_date(wanted.value):
        column = func.substr(column, 1, len(wanted.value))
    return _COMPARED[wanted.operator](column, wanted.value)
