"""Errors of the HTTP API: one shape, fixed messages.

- `{"error": {"code": "...", "message": "..."}}`; the code is for programs, the message for people.
- Only errors written for people (CairnError) show their own text; others are logged and answered with a fixed sentence.
- Problems of the catalogue or the store concern the administrator: the log has them in one line, the response says only
  that there is one.
- An unknown key or parameter is refused by name, with the nearest known one: a misspelt restriction would otherwise
  search everything.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, model_validator
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from app.http_security import INTERNAL, UNAVAILABLE, refusal
from retrieval.errors import (
    NOT_ENOUGH_MEMORY,
    CairnError,
    DamagedMemory,
    ExtractError,
    InvalidRequest,
    MemoryMismatch,
    NotEnoughSpace,
    NotFound,
    PermissionDenied,
    ran_out_of_memory,
)
from storage.errors import CannotWrite, CatalogueFull, CatalogueUnavailable, StoreFull, StoreUnavailable
from storage.names import unknown_name

log = logging.getLogger("cairn.api")

_STATUS: tuple[tuple[type[CairnError], int, str], ...] = (
    (NotFound, 404, "not_found"),
    (PermissionDenied, 403, "not_yours"),
    (NotEnoughSpace, 507, "not_enough_space"),
    (MemoryMismatch, 409, "memory_mismatch"),
    (DamagedMemory, 409, "damaged_memory"),
    (ExtractError, 422, "unreadable_file"),
    (InvalidRequest, 422, "invalid_request"),
)
RETRY_SECONDS = 10
_FULL = (errno.ENOSPC, errno.EDQUOT)
_UNAVAILABLE = (CatalogueUnavailable, StoreUnavailable, CannotWrite)
_CATALOGUE_FULL = "The server's disk is full, so nothing can be kept. Nothing was changed; try again later."
_MEMORY = "The server has too little memory for this at the moment. Try again later."
_HTTP_MESSAGES = {
    400: ("invalid_request", "The body of the request could not be read: it is broken, or nested too deeply."),
    404: ("not_found", "Not found."),
    405: ("wrong_method", "This address does not support that method."),
}


class Refused(CairnError):
    """A request that the app itself refuses: `status` and `code` tell the kind, the text why and what to do. Status 429
    always says when to try again."""

    def __init__(self, status: int, code: str, message: str, retry_seconds: float | None = None):
        super().__init__(message)
        if status == 429 and retry_seconds is None:
            retry_seconds = RETRY_SECONDS
        self.status, self.code = status, code
        self.headers = {} if retry_seconds is None else {"Retry-After": str(max(1, round(retry_seconds)))}


def describe(error: Exception) -> tuple[int, str, str]:
    """Exception -> (HTTP status, code, message that may be shown)."""
    if isinstance(error, Refused):
        return error.status, error.code, str(error)
    for kind, status, code in _STATUS:
        if isinstance(error, kind):
            return status, code, str(error)
    if isinstance(error, CairnError):
        return 409, "refused", str(error)
    if isinstance(error, (CatalogueFull, StoreFull)) or (isinstance(error, OSError) and error.errno in _FULL):
        return 507, "not_enough_space", _CATALOGUE_FULL
    if isinstance(error, _UNAVAILABLE):
        return 503, "unavailable", UNAVAILABLE
    if ran_out_of_memory(error):
        return 503, "not_enough_memory", _MEMORY
    return 500, "internal", INTERNAL


def error_body(error: Exception) -> dict[str, object]:
    """The error as the payload of an event or a response; unknown errors are logged, never shown."""
    status, code, message = describe(error)
    if status == 500:
        log.error("request failed", exc_info=error)
    elif isinstance(error, _UNAVAILABLE):
        log.error("%s", error)
    elif code == "not_enough_memory":
        log.error("%s (%s)", NOT_ENOUGH_MEMORY, error)
    return {"error": {"code": code, "message": message}}


def install(app: FastAPI) -> None:
    """Give every error of `app` this shape."""

    async def known(_request: Request, error: Exception) -> Response:
        status = describe(error)[0]
        if status == 500:
            raise error  # it gets its traceback in the log
        headers = error.headers if isinstance(error, Refused) else None
        return JSONResponse(error_body(error), status_code=status, headers=headers)

    for kind in (CairnError, *_UNAVAILABLE, OSError, MemoryError, RuntimeError, SystemError):
        app.add_exception_handler(kind, known)

    @app.exception_handler(RequestValidationError)
    async def malformed(_request: Request, error: RequestValidationError) -> Response:
        problems = "; ".join(dict.fromkeys(map(_problem, error.errors())))[:500]
        return refusal(422, "invalid_request", f"{problems}. /docs shows the form of every request.")

    @app.exception_handler(HTTPException)
    async def plain(_request: Request, error: HTTPException) -> Response:
        code, message = _HTTP_MESSAGES.get(error.status_code, ("refused", "The request was refused."))
        return refusal(error.status_code, code, message)


def _problem(found: Mapping[str, Any]) -> str:
    """One error of the validation, as "k: Input should be greater than or equal to 1"."""
    if found["type"] == "json_invalid":
        return "The body is not JSON"
    message = str(found["msg"]).removeprefix("Value error, ").rstrip(".")
    name = ".".join(str(part) for part in found["loc"][1:])
    return f"{name}: {message}" if name else message


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
