"""HTTP: whether the server is alive, whether it is ready for requests, and its metrics."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from app.api.dependencies import RequestLibrary, shared
from app.operations.metrics import CONTENT_TYPE, Metrics, Readiness
from retrieval.errors import CairnError
from retrieval.library import Library
from storage.errors import CatalogueUnavailable

CATALOGUE_SECONDS = 2.0

ServerReadiness = Annotated[Readiness, shared("readiness")]
ServerMetrics = Annotated[Metrics, shared("metrics")]

log = logging.getLogger("cairn.api")


routes = APIRouter(include_in_schema=False)


@routes.get("/healthz")
async def healthy() -> dict[str, str]:  # on the loop: it answers also when all threads are at work
    return {"status": "ok"}


@routes.get("/readyz")
async def ready(readiness: ServerReadiness, request: Request) -> Response:
    """200 while requests are wanted; else 503 with the reason."""
    state: str = readiness.state
    if state == "ready":
        whole: Library = request.app.state.library
        try:
            await asyncio.wait_for(asyncio.to_thread(whole.jobs.num_active), CATALOGUE_SECONDS)
        except (CairnError, CatalogueUnavailable, TimeoutError) as error:
            log.warning("not ready: %s", error or "the catalogue is slow")
            state = "catalogue unavailable"
    return JSONResponse({"status": state}, status_code=200 if state == "ready" else 503)


@routes.get("/metrics")
async def figures(library: RequestLibrary, metrics: ServerMetrics) -> Response:
    """For whoever runs the server only."""
    library.check_administrator()
    return Response(await run_in_threadpool(metrics.show), media_type=CONTENT_TYPE)
