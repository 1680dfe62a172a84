"""Requests say only what the API knows: an unknown key or parameter is refused by name, with the nearest known one.

A misspelt restriction would otherwise search everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import Request
from fastapi.dependencies.models import Dependant
from pydantic import BaseModel, ConfigDict, model_validator

from app.api.errors import Refused
from storage.names import unknown_name


class Body(BaseModel):
    """A JSON object of a request. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _knows_all_keys(cls, given: Any) -> Any:
        if isinstance(given, dict) and (problem := unknown_name(map(str, given), cls.model_fields, "key here")):
            raise ValueError(problem)
        return given


async def known_parameters(request: Request) -> None:
    """A dependency of all routes of the API: no unknown parameter in the address, no unknown field in a form. Raises
    `Refused`."""
    dependants = list(_with_dependencies(request.scope["route"].dependant))
    parameters = [one.alias for each in dependants for one in each.query_params]
    problem = unknown_name(request.query_params.keys(), parameters, "parameter here")
    if not problem and request.headers.get("content-type", "").startswith(("multipart/", "application/x-www-form")):
        fields = [one.alias for each in dependants for one in each.body_params]
        problem = unknown_name((await request.form()).keys(), fields, "field of this form")
    if problem:
        raise Refused(422, "invalid_request", f"{problem} /docs shows the form of every request.")


def _with_dependencies(dependant: Dependant) -> Iterator[Dependant]:
    yield dependant
    for below in dependant.dependencies:
        yield from _with_dependencies(below)
