"""HTTP: whether the server is alive, whether it is ready for requests, and its metrics."""

from __future__ import annotations

import asyncio
import logging

from fastapi import APIRouter, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from app.api.dependencies import RequestLibrary
from app.operations.metrics import CONTENT_TYPE, Metrics, Readiness
from retrieval.errors import CairnError
from retrieval.library import Library
from storage.errors import CatalogueUnavailable

CATALOGUE_SECONDS = 2.0

log = logging.getLogger("cairn.api")


def router(library: Library, readiness: Readiness, metrics: Metrics) -> APIRouter:
    routes = APIRouter(include_in_schema=False)

    @routes.get("/healthz")
    async def healthy() -> dict[str, str]:  # on the loop: it answers also when all threads are at work
        return {"status": "ok"}

    @routes.get("/readyz")
    async def ready() -> Response:
        """200 while requests are wanted; else 503 with the reason."""
        state: str = readiness.state
        if state == "ready":
            try:
                await asyncio.wait_for(asyncio.to_thread(library.jobs.num_active), CATALOGUE_SECONDS)
            except (CairnError, CatalogueUnavailable, TimeoutError) as error:
                log.warning("not ready: %s", error or "the catalogue is slow")
                state = "catalogue unavailable"
        return JSONResponse({"status": state}, status_code=200 if state == "ready" else 503)

    @routes.get("/metrics")
    async def figures(mine: RequestLibrary) -> Response:
        """For whoever runs the server only."""
        mine.check_administrator()
        return Response(await run_in_threadpool(metrics.show), media_type=CONTENT_TYPE)

    return routes
