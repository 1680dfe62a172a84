"""A server under several attacks at once, seen by another person: seconds of a question and of /healthz, and memory.

    python tests/stress/attack.py --pdf FILE.pdf --before CHECKOUT

One person, from other addresses of this machine, keeps 1,100 half-sent requests open, has 60 files estimated at once
(a third of them unpack to gigabytes), sends 70 questions, and guesses 40 passwords. Meanwhile another one asks, one
question after the other. Each side is a server process of its own over a home of its own (`--before`: an older
checkout; Linux only, for its many loopback addresses). Prints one JSON object. The attack costs processor time of the
same machine, which the other person's question pays too.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import psutil

SETUP = """
import sys
from pathlib import Path
from app.assembly import open_library
from app.auth import fresh_token, hash_password
from app.settings import load_settings
from storage.records import Principal
home, pdf = Path(sys.argv[1]), Path(sys.argv[2])
home.mkdir()
(home / "sample-offered").touch()
with open_library(load_settings(home=home)) as library:
    for name in ("ann", "bob"):
        token, digest = fresh_token()
        user = library.accounts.create(name, hash_password("a quiet pile of stones"))
        library.accounts.set_token_digest(user, digest)
        mine = library.as_seen_by(Principal(user.id, user.name))
        job = library.jobs.run(mine.documents.submit(pdf).id)
        assert job.state == "done", job.error
        print(token)
"""
BOB, ANN = "127.0.0.1", "127.0.0.2"
QUESTION = "What is this document about?"


def bomb(megabytes: int = 600) -> bytes:
    """A PDF of a few hundred bytes whose page unpacks, in two steps, to so many megabytes."""
    packer = zlib.compressobj(9)
    once = b"".join([*(packer.compress(b"q " * 500_000) for _ in range(megabytes)), packer.flush()])
    stream = zlib.compress(once, 9)
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 100 100] /Contents 4 0 R >>",
        b"<< /Length %d /Filter [/FlateDecode /FlateDecode] >>\nstream\n%s\nendstream" % (len(stream), stream),
    ]
    body = b"%PDF-1.7\n" + b"".join(b"%d 0 obj\n%s\nendobj\n" % (n, each) for n, each in enumerate(objects, 1))
    return body + b"trailer\n<< /Root 1 0 R /Size 5 >>\n%%EOF\n"


class Server:
    """A served home. Requests are made with a connection each, from a given address."""

    def __init__(self, checkout: Path, folder: Path, pdf: Path):
        environment = os.environ | {"PYTHONPATH": str(checkout), "CAIRN_MIN_FREE_BYTES": "0"}
        home = folder / "home"
        made = subprocess.run(
            [sys.executable, "-c", SETUP, home, pdf], cwd=checkout, env=environment, capture_output=True, text=True
        )
        assert made.returncode == 0, made.stderr
        self.tokens = dict(zip(("ann", "bob"), made.stdout.split(), strict=True))
        command = [sys.executable, "-m", "app", "serve", "--port", "0", "--json", "--home", str(home)]
        self.log = (folder / "log").open("w+")
        self.process = subprocess.Popen(
            command, cwd=checkout, env=environment, stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        assert self.process.stdout
        self.port = int(json.loads(self.process.stdout.readline())["url"].rsplit(":", 1)[1])

    def request(
        self, method: str, path: str, *, body: bytes = b"", kind: str = "", who: str = "", source: str, seconds: float
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds, source_address=(source, 0))
        headers = {"Connection": "close"} | ({"Content-Type": kind} if kind else {})
        headers |= {"Authorization": f"Bearer {self.tokens[who]}"} if who else {}
        with contextlib.closing(connection):
            connection.request(method, path, body=body or None, headers=headers)
            response = connection.getresponse()
            return response.status, response.read()

    def ask(self, who: str, source: str, seconds: float) -> int:
        body = json.dumps({"question": QUESTION}).encode()
        kind = "application/json"
        status, events = self.request(
            "POST", "/api/v1/ask", body=body, kind=kind, who=who, source=source, seconds=seconds
        )
        return status if status != 200 or b"event: answer" in events else 0

    def memory(self) -> tuple[int, int]:
        """Bytes of the server with all its processes (what they share counted once), and their number."""
        total, number = 0, 0
        with contextlib.suppress(psutil.Error):
            parent = psutil.Process(self.process.pid)
            for each in (parent, *parent.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    total += each.memory_full_info().uss
                    number += 1
        return total, number

    def stop(self) -> None:
        if self.process.poll() is not None:
            return
        for each in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                each.kill()
        self.process.kill()
        self.process.wait()


class Attack:
    """All of it at once, until it is stopped. `statuses`: what the attackers were answered."""

    def __init__(self, server: Server, pdf: Path):
        self.server, self.statuses = server, Counter[str]()
        self.stopping = threading.Event()
        good, hostile = pdf.read_bytes(), bomb()
        files = [hostile if n % 3 == 0 else good for n in range(60)]
        self._threads = [threading.Thread(target=self._half_sent, daemon=True)]
        self._threads += [threading.Thread(target=self._estimate, args=(each,), daemon=True) for each in files]
        self._threads += [threading.Thread(target=self._ask, daemon=True) for _ in range(70)]
        self._threads += [threading.Thread(target=self._guess, args=(n,), daemon=True) for n in range(40)]

    def __enter__(self) -> Attack:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stopping.set()

    def _half_sent(self) -> None:
        opened: list[socket.socket] = []
        while not self.stopping.is_set():
            with contextlib.suppress(OSError):
                if len(opened) >= 1100:
                    opened.pop(0).close()
                made = socket.create_connection(("127.0.0.1", self.server.port), 2, source_address=(ANN, 0))
                made.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: ")
                opened.append(made)
            if len(opened) >= 1100:
                time.sleep(0.05)
        for each in opened:
            each.close()

    def _noted(self, what: str, request: Callable[[], int]) -> None:
        try:
            self.statuses[f"{what} {request()}"] += 1
        except (OSError, http.client.HTTPException) as error:
            self.statuses[f"{what} {type(error).__name__}"] += 1

    def _estimate(self, content: bytes) -> None:
        head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.pdf"\r\n\r\n'
        body = head + content + b"\r\n--b--\r\n"
        kind = "multipart/form-data; boundary=b"
        self._noted(
            "estimate",
            lambda: self.server.request(
                "POST", "/api/v1/estimate", body=body, kind=kind, who="ann", source="127.0.0.3", seconds=300
            )[0],
        )

    def _ask(self) -> None:
        self._noted("question", lambda: self.server.ask("ann", "127.0.0.4", 300))

    def _guess(self, number: int) -> None:
        body, kind = f"name=bob&password=wrong-{number}-password".encode(), "application/x-www-form-urlencoded"
        self._noted(
            "sign-in",
            lambda: self.server.request("POST", "/login", body=body, kind=kind, source="127.0.0.5", seconds=300)[0],
        )


@contextlib.contextmanager
def watched(server: Server, most_bytes: float) -> Iterator[dict[str, list[float]]]:
    """Seconds of /healthz, and memory, every quarter of a second. Beyond `most_bytes` the server is ended."""
    seen: dict[str, list[float]] = {"health": [], "memory": [0.0], "processes": [0.0]}
    stop = threading.Event()

    def health() -> None:
        while not stop.is_set():
            began = time.monotonic()
            with contextlib.suppress(OSError, http.client.HTTPException):
                server.request("GET", "/healthz", source="127.0.0.6", seconds=30)
            seen["health"].append(time.monotonic() - began)
            stop.wait(0.25)

    def memory() -> None:
        while not stop.is_set():
            used, number = server.memory()
            seen["memory"].append(used)
            seen["processes"].append(number)
            if used > most_bytes:
                server.stop()
                return
            stop.wait(0.25)

    threads = [threading.Thread(target=each, daemon=True) for each in (health, memory)]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        stop.set()
        for thread in threads:
            thread.join(40)


def questions(server: Server, count: int, patience: float) -> list[float]:
    """Seconds of each of Bob's; `patience` where no answer came."""
    seconds = []
    for _ in range(count):
        if server.process.poll() is not None:
            return seconds + [patience] * (count - len(seconds))
        began = time.monotonic()
        try:
            answered = server.ask("bob", BOB, patience) == 200
        except (OSError, http.client.HTTPException):
            answered = False
        seconds.append(time.monotonic() - began if answered else patience)
    return seconds


def measure(checkout: Path, pdf: Path, count: int, patience: float, most_bytes: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        server = Server(checkout, Path(folder), pdf)
        try:
            questions(server, 2, 300)  # loads the model
            with watched(server, most_bytes) as quiet:
                idle = questions(server, count, patience)
            with Attack(server, pdf) as attack, watched(server, most_bytes) as seen:
                time.sleep(3)
                attacked = questions(server, count, patience)
            ended = server.process.poll() is not None
            server.log.seek(0)
            tracebacks = server.log.read().count("Traceback (most recent call last)")
        finally:
            server.stop()
    alone, beside = statistics.median(idle), statistics.median(attacked)
    return {
        "question_idle": round(alone, 2), "question_attacked": round(beside, 2), "ratio": round(beside / alone, 2),
        "question_attacked_worst": round(max(attacked), 2), "unanswered": sum(each >= patience for each in attacked),
        "health_idle_worst": round(max(quiet["health"]), 2), "health_worst": round(max(seen["health"]), 2),
        "memory_idle_gb": round(max(quiet["memory"]) / 1e9, 2), "memory_gb": round(max(seen["memory"]) / 1e9, 2),
        "processes": int(max(seen["processes"])), "ended_for_its_memory": ended, "tracebacks": tracebacks,
        "attackers": dict(attack.statuses),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pdf", type=Path, required=True, help="a document to ask about and to have estimated")
    parser.add_argument("--before", type=Path, help="an older checkout; run with this environment")
    parser.add_argument("--questions", type=int, default=7)
    parser.add_argument("--patience", type=float, default=60.0, help="seconds after which a question counts as lost")
    parser.add_argument("--stop-gb", type=float, default=6.0, help="memory at which a server is ended")
    given = parser.parse_args()
    result: dict[str, Any] = {**machine.described()}
    for name, checkout in (("before", given.before), ("now", ROOT)):
        if checkout is not None:
            result[name] = measure(
                checkout.resolve(), given.pdf.resolve(), given.questions, given.patience, 1e9 * given.stop_gb
            )
            print(name, result[name], file=sys.stderr, flush=True)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
