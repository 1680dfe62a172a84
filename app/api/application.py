"""Builds the web app from settings and a library: HTTP API, MCP, and the UI at "/"."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.routing import Mount

from app import version
from app.api import (
    bundles,
    documents,
    errors,
    folders,
    machine,
    openai_endpoint,
    questions,
    startup,
    writer_choice,
)
from app.api import changes as changing
from app.api import health as operations
from app.api import sign_on as single_sign_on
from app.api.mcp_tools import build_mcp, mcp_app
from app.api.uploads import Uploads
from app.assembly import server_token
from app.auth import Authenticator, check_binding, is_loopback
from app.http_security import FOR_GOOD, AccessMiddleware, ForwardedHeaders, PageHeaders, RequestShares
from app.operations.metrics import CountProblems, Gauges, Metrics, Readiness
from app.operations.requests import NotedRoutes, WatchedRequests
from app.preferences import PreferenceFolder
from app.settings import Settings
from app.single_sign_on.sign_on import SignOn
from app.web.bundle import own_page, page_assets
from retrieval.accounts import Accounts
from retrieval.library import Library
from retrieval.replicas import CatalogueValues

log = logging.getLogger("cairn.api")

UI_FOLDER = Path(__file__).parent.parent / "web"
MAX_BODY_BYTES = 1_000_000
MULTIPART_OVERHEAD_BYTES = 100_000
DESCRIPTION = """Document question answering over the stored memory of a landmark-attention model.

Errors have one shape: `{"error": {"code": "...", "message": "..."}}`. Programs send `Authorization: Bearer TOKEN`
(`cairn token` prints it); with accounts, each user's own, and what is not theirs or shared with them is not found.
Pages count from 1; boxes are fractions of the displayed page, origin top left.
"""


def build_app(settings: Settings, library: Library, *, page: bool = True) -> FastAPI:
    """The web app over an open library: HTTP API, MCP and, unless `page` is False, the UI at "/".

    Raises ValueError for an address that needs a password, or a password that is too short.
    """
    accounts = library.accounts
    sign_on, authenticator = _signing_in(settings, accounts, library.replicas.values)
    uploads, travelling = Uploads(library, settings), bundles.Bundles()
    metrics, readiness = Metrics(), Readiness()
    ask_queue = questions.AskQueue(settings, metrics, library.replicas.announce)
    metrics.registry.register(Gauges(library, readiness, ask_queue.counts))
    problems = CountProblems(metrics)
    changes = changing.Changes()
    tools = build_mcp(library, ask_queue)
    tools_app = mcp_app(tools)

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        logging.getLogger().addHandler(problems)
        stop_listening = changes.listen(library.replicas, ask_queue.receive)
        async with startup.preparing(library, settings.home, readiness), tools.session_manager.run():
            yield
        await run_in_threadpool(stop_listening)
        for queue in (ask_queue, uploads, travelling):
            queue.close()
        logging.getLogger().removeHandler(problems)

    app = _bare_app(lifespan)
    errors.install(app)
    app.state.library, app.state.settings, app.state.accounts = library, settings, accounts
    app.state.preferences = PreferenceFolder(library.replicas.blobs)
    app.state.authenticator, app.state.sign_on = authenticator, sign_on
    app.state.uploads, app.state.bundles = uploads, travelling
    app.state.ask_queue, app.state.changes = ask_queue, changes
    app.state.readiness, app.state.metrics = readiness, metrics
    for part in (
        machine.sign_in_routes,
        operations.routes,
        documents.routes,
        bundles.routes,
        questions.routes,
        changing.routes,
        folders.routes,
        machine.routes,
        writer_choice.routes,
        startup.routes,
        *((single_sign_on.routes, single_sign_on.account_routes) if sign_on else ()),
        openai_endpoint.routes,
    ):
        app.router.routes.extend(part.routes)  # as they are: `include_router` would analyse each of them again
    _add_pages(app)
    app.mount("/mcp", tools_app)
    if page:
        from app.web.frame import mount_ui  # here: importing Gradio takes seconds

        mount_ui(app, preferences=app.state.preferences, home=settings.home, own_words=lambda: library.writes_own_words)
    app.add_middleware(NotedRoutes, mounts=[route.path for route in app.routes if isinstance(route, Mount)])
    _add_guards(app, authenticator, settings, changes, with_page=page)
    app.add_middleware(WatchedRequests, metrics=metrics, tell=settings.log_format == "json")
    return app


def _bare_app(lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]]) -> FastAPI:
    return FastAPI(
        title="Cairn",
        description=DESCRIPTION,
        version=version(),
        docs_url=None,  # FastAPI's page loads its scripts from elsewhere; /docs is our own
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
        lifespan=lifespan,
    )


def _signing_in(settings: Settings, accounts: Accounts, values: CatalogueValues) -> tuple[SignOn | None, Authenticator]:
    """Raises ValueError as `build_app`."""
    sign_on = single_sign_on.sign_on_of(settings, accounts, values)
    has_accounts = accounts.any or sign_on is not None
    check_binding(settings.host, password=settings.password, token=settings.token, accounts=has_accounts)
    authenticator = Authenticator(
        password=settings.password,
        token=server_token(settings),
        accounts=accounts,
        on_this_machine=is_loopback(settings.host) and not settings.password and not settings.token,
        single_sign_on=sign_on is not None,
        metrics_token=settings.metrics_token,
        values=values,
    )
    if has_accounts and (settings.password or settings.token):
        log.warning("There are accounts: people sign in with these. The server's own password and token open nothing.")
    return sign_on, authenticator


def _add_guards(
    app: FastAPI, authenticator: Authenticator, settings: Settings, changes: changing.Changes, *, with_page: bool
) -> None:
    app.add_middleware(changing.NotifyChanges, changes=changes)
    app.add_middleware(RequestShares)
    app.add_middleware(
        AccessMiddleware,
        authenticator=authenticator,
        host=settings.host,
        max_body_bytes=MAX_BODY_BYTES,
        max_upload_bytes=settings.max_upload_bytes + MULTIPART_OVERHEAD_BYTES,
    )
    app.add_middleware(PageHeaders, **({"rewrite": own_page} if with_page else {}))  # refusals carry the headers too
    app.add_middleware(ForwardedHeaders, trusted_hosts=settings.proxies)


def _add_pages(app: FastAPI) -> None:
    @app.get("/docs", include_in_schema=False)
    def reference() -> Response:
        return FileResponse(UI_FOLDER / "reference.html", media_type="text/html")

    @app.api_route("/mcp", methods=["GET", "POST", "DELETE"], include_in_schema=False)
    def tools_without_a_slash() -> Response:
        return RedirectResponse("mcp/", status_code=307)  # behind a proxy's path, too

    @app.get("/api/{rest:path}", include_in_schema=False)
    def no_such_address(rest: str) -> Response:
        raise errors.Refused(404, "not_found", "There is no such address; /docs lists all of them.")

    assets = {asset.name: asset for asset in page_assets()}

    @app.get("/ui/{part}.{digest}.{ending}", include_in_schema=False)
    def page(request: Request, part: str, digest: str, ending: str) -> Response:
        asset = assets.get(f"{part}.{digest}.{ending}")
        if asset is None:
            raise errors.Refused(404, "not_found", "The page has changed. Load it again.")
        headers = {"Cache-Control": FOR_GOOD, "Vary": "Accept-Encoding"}
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(asset.content, media_type=asset.media_type, headers=headers)
        return Response(asset.compressed, media_type=asset.media_type, headers={**headers, "Content-Encoding": "gzip"})

    app.mount("/ui", StaticFiles(directory=UI_FOLDER / "static"), name="ui")
