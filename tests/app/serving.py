"""The web app on a free port for browser tests; over a small library, to look at: `python -m tests.app.serving`."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from app.api import build_app
from app.settings import Settings

OWNER_TOKEN = "owners-token-of-all-homes-in-tests"
BEARER = {"Authorization": f"Bearer {OWNER_TOKEN}"}
"""What a program sends to a server without a password, a token or accounts."""
SMALL: dict[str, Any] = {
    "max_upload_bytes": 20_000_000, "max_uploads": 20, "min_free_bytes": 0, "max_jobs": 100, "max_questions": 64,
    "questions_at_once": 8, "questions_at_once_each": 8, "writer_timeout": 60.0, "writer_memory": 0,
    "oidc_title": "Example", "oidc_groups_claim": "groups",
}  # fmt: skip


def settings_for(home: Path, **given: Any) -> Settings:
    """Settings of a small server; what is not `given` or `SMALL` is as it is for everybody."""
    return Settings(home=home, **(SMALL | given))


def let_in(client: Any) -> Any:
    """`client`, with the session of the server's owner, as a browser has it that opened the printed address."""
    client.get("/", params={"token": OWNER_TOKEN}, follow_redirects=False)
    return client


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

    from app.auth import owner_token
    from retrieval.library import Library
    from tests.app.small_library import RESERVOIR, fill, slowed
    from tests.tiny_model import shipped_model

    with tempfile.TemporaryDirectory() as folder, Library.open(fill(Path(folder)), shipped_model) as library:
        (document,) = library.documents.list(search=RESERVOIR)
        library.documents.move(document.id, library.collections.create("Waterworks").id)
        slowed(library, 0.04)
        print(f"http://127.0.0.1:7998/?token={owner_token(Path(folder) / 'home')}")
        app = build_app(settings_for(Path(folder) / "home"), library)
        uvicorn.run(app, host="127.0.0.1", port=7998, log_level="warning")


if __name__ == "__main__":
    main()
