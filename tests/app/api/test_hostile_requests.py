"""Requests and documents that try to make the server fetch something, or choke on a form."""

from __future__ import annotations

import asyncio
import errno
import io
import random
import shutil
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.api import build_app
from retrieval.bundles.importing import Bundles
from retrieval.library import Library
from storage.blobs.files import FileBlobs
from storage.errors import StoreFull
from tests.app.api_client import PDF, error_code
from tests.app.serving import let_in, settings_for
from tests.waiting import until


class Listener:
    """A server on this machine that notes who asks it for anything."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                listener.asked.append(self.path)
                self.send_response(200)
                self.end_headers()

            do_POST = do_HEAD = do_GET

            def log_message(self, *_arguments: Any) -> None:
                """Silent."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def listener() -> Iterator[Listener]:
    listener = Listener()
    yield listener
    listener.server.shutdown()


def fetching_documents(url: str) -> dict[str, bytes]:
    """Files of every kind that name something to be fetched."""
    html = (
        f'<html><head><base href="{url}/"><link rel="stylesheet" href="{url}/a.css"><script src="{url}/b.js"></script>'
        f'<meta http-equiv="refresh" content="0;url={url}/c"></head><body><img src="{url}/d.png"><iframe src="{url}/e">'
        f'</iframe><object data="{url}/f"></object><p>The dam is old.</p></body></html>'
    )
    doctype = f'<?xml version="1.0"?><!DOCTYPE d [<!ENTITY % x SYSTEM "{url}/g.dtd"> %x; <!ENTITY y SYSTEM "{url}/h">]>'
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    document = (
        f'{doctype}<w:document xmlns:w="{word}"><w:body><w:p><w:r><w:t>&y;dam</w:t></w:r></w:p></w:body></w:document>'
    )
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("word/document.xml", document)
        archive.writestr("[Content_Types].xml", "<Types/>")
    action = b"/OpenAction << /S /URI /URI (%s/i) >> " % url.encode()
    return {
        "a.html": html.encode(),
        "b.html": (doctype + html).encode(),
        "c.md": f"![picture]({url}/j.png) [link]({url}/k)\n\n<img src='{url}/l'>\n\nThe dam is old.".encode(),
        "d.docx": packed.getvalue(),
        "e.pdf": PDF.replace(b"/Type /Catalog", b"/Type /Catalog " + action),
    }


def test_no_document_makes_the_server_fetch_anything(client: TestClient, listener: Listener) -> None:
    for name, content in fetching_documents(listener.url).items():
        client.post("/api/v1/estimate", files={"file": (name, content)})
        client.post("/api/v1/uploads", files={"file": (name, content)})
    until(lambda: all(one["state"] != "estimating" for one in client.get("/api/v1/uploads").json()["uploads"]))
    assert listener.asked == []


def test_no_request_makes_the_server_fetch_anything(library: Library, home: Path, listener: Listener) -> None:
    app = build_app(settings_for(home), library)
    url = listener.url
    file = {"path": f"{url}/a", "url": f"{url}/b", "meta": {"_type": "gradio.FileData"}}
    with TestClient(app, base_url="http://127.0.0.1") as client:
        functions = let_in(client).get("/config").json()["dependencies"]
        for path in (f"/gradio_api/file={url}/c", f"/gradio_api/proxy={url}/d", f"/proxy={url}/e", f"/file={url}/f"):
            assert client.get(path).status_code in (403, 404)
        for function in functions:
            body = {"data": [file] * 3, "fn_index": function["id"], "session_hash": "x"}
            client.post("/gradio_api/queue/join", json=body)
        message = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": f"{url}/g"}}
        client.post("/mcp/", json=message, headers={"Accept": "application/json, text/event-stream"})
        client.get("/", headers={"X-Forwarded-Host": url.removeprefix("http://"), "Referer": url})
    assert listener.asked == []


@pytest.mark.parametrize("length", ["\xb2", "9" * 5000, "-1", "+5", "0x10"])
def test_a_length_that_is_no_number_is_refused(shared_client: TestClient, length: str) -> None:
    headers = {"Content-Length": length.encode("latin-1"), "Content-Type": "application/json"}
    assert shared_client.post("/api/v1/search", content=b"{}", headers=headers).status_code == 413


def test_a_request_with_two_lengths_is_refused_and_its_connection_closed(shared_client: TestClient) -> None:
    headers = {"Content-Length": "5", "Transfer-Encoding": "chunked", "Content-Type": "application/json"}
    refused = shared_client.post("/api/v1/search", content=b"0\r\n\r\n", headers=headers)
    assert refused.status_code == 400 and error_code(refused) == "two_lengths"
    assert refused.headers["connection"] == "close"


def test_one_library_of_a_person_goes_out_at_a_time_and_leaves_room_on_the_disk(
    client: TestClient, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = []

    def written(_bundles: Bundles, path: Path, **_which: Any) -> None:
        path.write_bytes(b"a library")
        inside.append(client.get("/api/v1/bundle"))  # while it is being written

    monkeypatch.setattr(Bundles, "export_to", written)
    assert client.get("/api/v1/bundle").content == b"a library"
    assert inside[0].status_code == 429 and error_code(inside[0]) == "too_many_bundles"
    assert client.get("/api/v1/bundle").status_code == 200  # the one before has left
    assert list((home / "uploads").iterdir()) == []
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=1000))
    refused = client.get("/api/v1/bundle")
    assert refused.status_code == 507 and error_code(refused) == "not_enough_space" and len(inside) == 2


def test_an_export_whose_sending_fails_does_not_keep_out_the_next_one(
    client: TestClient, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bundles, "export_to", lambda _bundles, path, **_which: path.write_bytes(b"a library"))
    for unreadable, status in (("x", 400), ("bytes=900-", 416)):
        assert client.get("/api/v1/bundle", headers={"Range": unreadable}).status_code == status
        assert list((home / "uploads").iterdir()) == []
    assert client.get("/api/v1/bundle").content == b"a library"


def test_a_library_that_waits_to_be_exported_is_withdrawn_when_the_server_ends(library: Library, home: Path) -> None:
    app = build_app(settings_for(home), library, page=False)
    goes_on, begun, bundles = threading.Event(), [], app.state.bundles

    def work() -> None:
        begun.append(1)
        assert goes_on.wait(60)

    with ThreadPoolExecutor(2) as threads:
        with TestClient(app):
            first, second = (threads.submit(asyncio.run, bundles.in_turn("ann", work)) for _ in range(2))
            until(lambda: bundles._queue.counts() == (1, 1))
        goes_on.set()
        wait([first, second])
    assert begun == [1] and first.exception() is None and isinstance(second.exception(), asyncio.CancelledError)


def test_what_cannot_be_kept_on_a_full_disk_is_said_and_changes_nothing(
    shared_client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = shared_client

    def full(*_arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = client.get("/api/v1/preferences").json()
    for error in (full, lambda *_: (_ for _ in ()).throw(StoreFull("a.json could not be written"))):
        monkeypatch.setattr(FileBlobs, "replace", error)
        refused = client.patch("/api/v1/preferences", json={"top_k": before["top_k"] + 1})
        assert refused.status_code == 507 and error_code(refused) == "not_enough_space"
    assert client.get("/api/v1/preferences").json() == before


def test_malformed_and_huge_forms_are_refused_in_the_one_shape(client: TestClient) -> None:
    kind = "multipart/form-data; boundary=b"
    part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.pdf"\r\n\r\n'
    whole = part + PDF + b"\r\n--b--\r\n"

    def field(name: bytes) -> bytes:
        return b'--b\r\nContent-Disposition: form-data; name="%s"\r\n\r\n' % name

    rng = random.Random(0)
    bodies = [
        b"", b"--b--", part, whole[: len(whole) // 2], part.replace(b"name", b"nome") + PDF + b"\r\n--b--\r\n",
        field(b"file") + b"no file\r\n--b--\r\n",
        b"".join(field(b"f%d" % n) + b"x\r\n" for n in range(3000)) + b"--b--\r\n",
        part.replace(b"a.pdf", b"a" * 500_000 + b".pdf") + b"x\r\n--b--\r\n",
        b"--b\r\n" + b"X-Header: y\r\n" * 20_000 + b"\r\nx\r\n--b--\r\n",
        field(b"collection") + b"x" * 3_000_000 + b"\r\n" + whole,
        *(bytes(byte ^ (rng.random() < 0.02) for byte in whole) for _ in range(30)),
    ]  # fmt: skip
    for number, body in enumerate(bodies):
        response = client.post("/api/v1/documents", content=body, headers={"Content-Type": kind})
        assert response.status_code in (202, 400, 413, 415, 422), (number, response.status_code, response.text[:200])
        if response.status_code != 202:
            assert error_code(response)
    for strange in ("multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=\xff"):
        response = client.post("/api/v1/documents", content=whole, headers={"Content-Type": strange.encode("latin-1")})
        assert response.status_code in (400, 422) and error_code(response), strange
    assert client.get("/healthz").status_code == 200
