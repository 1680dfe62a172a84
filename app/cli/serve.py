"""`cairn serve`: the web UI and the HTTP API, with a runner for the ingestion queue."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.options import Call, path_given
from app.cli.output import tell, write_json
from app.errors import SettingsError
from app.operations.logs import log_to

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

    from app.settings import Settings

SHUTDOWN_SECONDS = 5


def serve(
    call: Call,
    host: Annotated[
        str | None, typer.Option("--host", metavar="ADDRESS", help="Or CAIRN_HOST; default 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", metavar="PORT", help="Or CAIRN_PORT; default 7860, 0 takes a free one.")
    ] = None,
    watch: Annotated[
        list[str] | None,
        typer.Option(
            "--watch",
            metavar="DIR",
            parser=path_given,
            help="Follow this folder while serving, as `sync` does; repeatable.",
        ),
    ] = None,
    jobs: Annotated[
        bool | None,
        typer.Option(
            "--jobs/--no-jobs",
            show_default=False,
            help="Read documents here (default), or leave that to `cairn work` (or CAIRN_JOBS).",
        ),
    ] = None,
) -> None:
    """Serve the web UI and the HTTP API until Ctrl-C.

    With --json, one line says where once it answers.
    """
    settings = call.settings(host=host, port=port, jobs=jobs)
    followed = watch or settings.watch.split(os.pathsep)
    run_server(settings, [Path(path) for path in followed if path], as_json=call.as_json)


def token(call: Call) -> None:
    """Print the token with which programs reach `cairn serve`.

    Without a password, a token of yours (CAIRN_TOKEN) or accounts, the server takes the one in the home folder's file
    `token`, which is made once. To replace it, remove the file and start the server again.
    """
    from app.assembly import server_token

    settings = call.settings()
    value = server_token(settings)
    if not settings.token:
        with call.library() as library:
            if library.accounts.any:
                raise SettingsError("People sign in by name here. `cairn user token NAME` makes a token for one.")
    if value is None:
        raise SettingsError(
            "This server has no token of its own: it has a password, or people sign in elsewhere. See CAIRN_TOKEN."
        )
    call.write({"token": value}, value)


def run_server(settings: Settings, followed: Sequence[Path], *, as_json: bool) -> None:
    """Blocks until the process is told to stop. `followed`: folders to follow meanwhile. Raises SettingsError before
    anything heavy where it cannot work."""
    from app import assembly

    assembly.keep_quiet()
    assembly.check_model(settings.model)
    assembly.prepare_home(settings.home)
    log_to(settings.home / "logs", settings.log_format)
    listener = listen(settings.host, settings.port)
    address, port = settings.host, listener.getsockname()[1]
    url = f"http://{f'[{address}]' if ':' in address else address}:{port}"
    tell(f"Cairn starts on {url} ...")

    from app.api import build_app
    from app.operations.server import DrainingServer
    from app.work import FolderWatcher, JobRunner

    class Server(DrainingServer):
        """Says where it is once requests are answered."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            if self.started:
                if as_json:
                    write_json({"url": url, "home": str(settings.home)})
                tell(f"Cairn is at {url}{opened_by} (Ctrl-C stops it; documents are kept in {settings.home})")

    with assembly.open_library(settings) as library:
        try:
            app = build_app(settings, library)
            own = app.state.authenticator.on_this_machine
            opened_by = f"/?token={assembly.server_token(settings)}" if own else ""
        except ValueError as error:  # an address that needs a password, a password that is too short
            raise SettingsError(str(error)) from error
        watcher = FolderWatcher(library, followed)
        ask_queue, readiness = app.state.ask_queue, app.state.readiness
        with JobRunner(library) if settings.jobs else nullcontext() as jobs, watcher:
            server = Server(
                _config(app, settings),
                at_work=lambda: any(ask_queue.counts()),
                when_draining=[
                    lambda: readiness.become("stopping"),
                    ask_queue.drain,
                    *([] if jobs is None else [lambda: jobs.stop(0.0)]),
                ],
                cut_short=ask_queue.close,
                drain_seconds=settings.drain_seconds,
            )
            app.state.changes.stopping = lambda: server.should_exit
            server.run(sockets=[listener])


def _config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    import uvicorn

    from app.http_security import declared_proxies
    from app.limits.connections import ConnectionLimits, allow_open_files, limited_protocol

    places = allow_open_files(settings.max_connections)
    limits = ConnectionLimits(in_all=places, each=min(ConnectionLimits.each, places))
    return uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # the app's own middleware removes those of others as well
        http=limited_protocol(limits, declared_proxies(settings.proxies)),
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )


def listen(host: str, port: int) -> socket.socket:
    """A bound socket. Raises SettingsError when the address is taken or is not this machine's."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise SettingsError(
            f"Nothing can be served on {host} port {port}: {error.strerror}. Choose others with --host and --port."
        ) from error
    return listener
