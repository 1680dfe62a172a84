"""The web app on a free port for browser tests; over a small library, to look at: `python -m tests.app.serving`."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from app.api import build_app


@dataclass(frozen=True)
class FakeSettings:
    """What `build_app` takes from the settings."""

    home: Path
    host: str = "127.0.0.1"
    password: str | None = None
    token: str | None = None
    metrics_token: str | None = None
    log_format: str = "text"
    tracing: bool = False
    max_upload_bytes: int = 20_000_000
    max_uploads: int = 20
    max_library_bytes: int | None = None
    min_free_bytes: int = 0
    writer: str | None = None
    writer_key: str | None = None
    writer_timeout: float = 60.0
    writer_memory: int = 0
    writer_repair: float | None = None
    writer_int8: bool = False
    writer_ahead: bool = False
    device: str = "auto"
    dtype: str = "auto"
    questions_at_once: int = 8
    questions_at_once_each: int = 8
    max_questions: int = 64
    max_jobs: int = 100
    proxies: str = ""
    watch_seconds: float = 60.0
    oidc_issuer: str | None = None
    oidc_client_id: str | None = None
    oidc_client_secret: str | None = None
    oidc_address: str | None = None
    oidc_title: str = "Example"
    oidc_scopes: str = "openid profile email"
    oidc_username_claim: str = "preferred_username"
    oidc_groups_claim: str | None = "groups"
    oidc_allowed_groups: str = ""
    oidc_new_accounts: bool = True
    oidc_link_names: bool = False
    oidc_session_hours: float = 12.0


@contextmanager
def served(app: Any, **options: Any):
    """Yields the app's address; stops it afterwards. `options`: of `uvicorn.Config`."""
    listening = socket.create_server(("127.0.0.1", 0))  # held from now on: nobody else gets the port
    port = listening.getsockname()[1]
    config = uvicorn.Config(
        app, log_level="warning", lifespan="on", proxy_headers=False,
        timeout_graceful_shutdown=1, **options,
    )  # fmt: skip
    server = uvicorn.Server(config)
    if hasattr(getattr(app, "state", None), "changes"):
        app.state.changes.stopping = lambda: server.should_exit
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise RuntimeError("the server did not start")
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()


def main() -> None:
    import tempfile

    from retrieval.library import Library
    from tests.app.small_library import RESERVOIR, fill, slowed
    from tests.tiny_model import shipped_model

    with tempfile.TemporaryDirectory() as folder, Library.open(fill(Path(folder)), shipped_model) as library:
        (document,) = library.documents(search=RESERVOIR)
        library.move_document(document.id, library.create_collection("Waterworks").id)
        slowed(library, 0.04)
        app = build_app(FakeSettings(Path(folder) / "home"), library)  # type: ignore[arg-type]
        uvicorn.run(app, host="127.0.0.1", port=7998, log_level="warning")


if __name__ == "__main__":
    main()
