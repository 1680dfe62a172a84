"""A cluster on one machine: nodes and servers are killed, the database is restarted, the bucket is slow. Does it hold?

    python tests/stress/cluster.py --files 200 --nodes 2 --askers 10 --seed 3
    python tests/stress/cluster.py --files 60 --nodes 3 --calm   # nothing is struck: files an hour

PostgreSQL, an S3 server (moto), two servers behind a small proxy, and nodes that read (`cairn work`), each a process
with a home of its own. Files of several kinds are handed in while people ask without end. As reading goes on, in an
order that the seed decides, a node is killed (SIGKILL) and comes back, a server is killed and comes back, PostgreSQL is
restarted, and the bucket takes a second and a half for each request for a while.

Then every file must be stored once, whole and checked; nothing that was committed may have been read again; every
question must have been answered, or refused in words, or put again after its connection broke, and then answered; and
both servers must show the same library within seconds. Prints one JSON object; exit status 1 if anything did not hold.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import random
import re
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

os.environ |= {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import httpx2
import machine
import psutil
from sqlalchemy import make_url

from tests import forked, object_server, postgresql
from tests.app.api_client import events
from tests.app.small_library import pdf_of
from tests.retrieval.conftest import prose

TOKEN = "the token of a cluster that lives for minutes"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
LEASE_SECONDS, SLOW_SECONDS, SHARD_OVERHEAD = 5, 1.5, 2
SAME_WITHIN_SECONDS = 10.0
_PROCESS = """
import json, os, runpy, sys
log, environment, *sys.argv = sys.argv[1:]
for number in (1, 2):
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
os.environ.update(json.loads(environment))
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


class Balancer(socketserver.ThreadingTCPServer):
    """Passes each connection on to the next server that takes it."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, ports: list[int]):
        self.ports, self._turns = ports, itertools.count()
        super().__init__(("127.0.0.1", 0), _Passing)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def behind(self) -> socket.socket | None:
        first = next(self._turns) % len(self.ports)
        for port in self.ports[first:] + self.ports[:first]:
            with suppress(OSError):
                behind = socket.create_connection(("127.0.0.1", port), 5)
                behind.settimeout(None)  # an answer may be silent for longer
                return behind
        return None


class _Passing(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Balancer)
        if (behind := self.server.behind()) is None:
            return
        back = threading.Thread(target=self._pass, args=(behind, self.request), daemon=True)
        back.start()
        self._pass(self.request, behind)
        back.join()

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class Cluster:
    """The processes, and what can be done to them."""

    def __init__(self, folder: Path, stack: ExitStack, given: argparse.Namespace):
        self.folder, self._stack, self.given = folder, stack, given
        self.database = postgresql.Databases(stack.enter_context(postgresql.running_server())).take_bare()
        self.bucket = stack.enter_context(object_server.failing_proxy())
        self.places = {
            **object_server.ACCESS,
            "CAIRN_DATABASE_URL": self.database,
            "CAIRN_STORE_URL": object_server.new_store(through=self.bucket.url),
            "CAIRN_LEASE_SECONDS": str(LEASE_SECONDS),
            "CAIRN_TOKEN": TOKEN,
            "CAIRN_THREADS": "1",
            "CAIRN_OCR": "off",
        }
        self.running: dict[str, Any] = {}
        self.ports = {f"server {number}": _free_port() for number in (1, 2)}
        self.nodes = [f"node {number}" for number in range(1, given.nodes + 1)]

    def start(self, name: str) -> None:
        home = self.folder / name.replace(" ", "-")
        home.mkdir(exist_ok=True)
        command = ["app", "work"]
        if name in self.ports:
            command = ["app", "serve", "--no-jobs", "--port", str(self.ports[name])]
        log = str(self.folder / f"{name}.log")
        environment = self.places | {"CAIRN_HOME": str(home)}
        self.running[name] = process = forked.started("-c", _PROCESS, log, json.dumps(environment), *command)
        self._stack.callback(_kill, process)

    def kill(self, name: str) -> None:
        _kill(self.running.pop(name))

    def restart_postgresql(self) -> None:
        """A fast shutdown, and the same command again."""
        folder = Path(str(make_url(self.database).query["host"]))
        process = int((folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        command = [
            word.strip('"') for word in re.findall(r'"[^"]*"|\S+', (folder / "data" / "postmaster.opts").read_text())
        ]
        os.kill(process, signal.SIGINT)
        _until(lambda: not (folder / "data" / "postmaster.pid").exists(), 60)
        other: dict[str, Any] = {"user": "nobody", "group": "nogroup"} if os.geteuid() == 0 else {}
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        again = subprocess.Popen(command, cwd=folder, **quiet, **other)
        self._stack.callback(_kill, again)

    def slow_bucket(self, seconds: float) -> None:
        def wait(_method: str, _path: str) -> None:
            time.sleep(SLOW_SECONDS)

        calm, self.bucket.fault = self.bucket.fault, wait
        threading.Timer(seconds, lambda: setattr(self.bucket, "fault", calm)).start()

    def shards_written(self) -> int:
        """Files of memory that were sent to the bucket and did not exist there."""
        return len({path for method, path in self.bucket.requests if method == "PUT" and ".kv" in path})


class People:
    """Who asks without end, and what became of it."""

    def __init__(self, address: str, askers: int):
        self.address, self.ended = address, threading.Event()
        self.counts, self.violations = Counter[str](), list[str]()
        self._threads = [threading.Thread(target=self._ask_on, args=(number,)) for number in range(askers)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self.ended.set()
        for thread in self._threads:
            thread.join(300)
            if thread.is_alive():
                self.violations.append("a question was neither answered nor refused in five minutes")

    def _ask_on(self, number: int) -> None:
        chance = random.Random(number)
        while not self.ended.is_set():
            question = f"Who {chance.choice(('guards', 'paints', 'mends'))} the {chance.choice(('tower', 'mill'))}?"
            while not self._asked(question) and not self.ended.is_set():
                time.sleep(0.5)
            time.sleep(chance.random())

    def _asked(self, question: str) -> bool:
        """Whether it was answered."""
        try:
            response = httpx2.post(
                f"{self.address}/api/v1/ask", json={"question": question}, headers=HEADERS, timeout=240
            )
            told = events(response.text)[-1:] if response.status_code == 200 else [("error", response.json())]
        except httpx2.HTTPError:
            self.counts["connections that broke"] += 1
            return False
        except (ValueError, KeyError):  # a stream that was cut amid an event
            self.counts["answers cut short"] += 1
            return False
        name, body = told[0] if told else ("", {})
        if name == "answer":
            self.counts["answers"] += 1
            return True
        code = body.get("error", {}).get("code", "")
        self.counts[f"refused: {code}" if name == "error" else "answers cut short"] += 1
        if name == "error" and (code in ("", "internal") or not body["error"]["message"]):
            self.violations.append(f"refused without words: {body}")
        return False


def files_of(folder: Path, number: int, characters: int) -> list[Path]:
    """Files of several kinds, no two alike."""
    folder.mkdir()
    made = []
    for at in range(number):
        text, kind = prose(at, characters), ("txt", "md", "html", "csv", "pdf")[at % 5]
        path = folder / f"{at:03}.{kind}"
        if kind == "pdf":
            path.write_bytes(pdf_of([text]))
        else:
            rows = "\n".join(f"{n},{one}" for n, one in enumerate(text.split(". ")))
            path.write_text(
                {"md": f"# Part {at}\n\n{text}", "html": f"<p>{text}</p>", "csv": f"n,said\n{rows}"}.get(kind, text)
            )
        made.append(path)
    return made


def strikes(cluster: Cluster, given: argparse.Namespace) -> list[tuple[str, Callable[[], None], Callable[[], None]]]:
    """What is done, and what mends it some seconds later; in the order of the seed."""
    chance = random.Random(given.seed)
    node, server = chance.choice(cluster.nodes), chance.choice(list(cluster.ports))
    found: list[tuple[str, Callable[[], None], Callable[[], None]]] = [
        (f"{one} killed", lambda one=one: cluster.kill(one), lambda one=one: cluster.start(one))
        for one in (node, server)
    ]
    found.append(("PostgreSQL restarted", cluster.restart_postgresql, lambda: None))
    found.append(("bucket slow", lambda: cluster.slow_bucket(given.slow), lambda: None))
    chance.shuffle(found)
    return found


def campaign(cluster: Cluster, stack: ExitStack, given: argparse.Namespace) -> dict[str, Any]:
    for name in (*cluster.ports, *cluster.nodes):
        cluster.start(name)
    balancer = stack.enter_context(Balancer(list(cluster.ports.values())))
    address = f"http://127.0.0.1:{balancer.server_address[1]}"
    _until(lambda: all(_ready(port) for port in cluster.ports.values()), 240)
    files = files_of(cluster.folder / "files", given.files, given.characters)
    people = People(address, given.askers)
    people.start()
    began = time.monotonic()
    for path in files:
        with path.open("rb") as file:
            one = {"file": (path.name, file)}
            sent = httpx2.post(f"{address}/api/v1/documents", files=one, headers=HEADERS, timeout=240)
        assert sent.status_code == 202, sent.text
    left = [] if given.calm else strikes(cluster, given)
    done, mend, struck = 0, list[tuple[float, Callable[[], None]]](), []
    while (done := _done(cluster)) < len(files) and time.monotonic() - began < given.patience:
        for due, action in list(mend):
            if time.monotonic() >= due:
                mend.remove((due, action))
                action()
        if left and done >= (1 + len(struck)) * len(files) // 6:
            name, strike, mending = left.pop(0)
            print(f"{done} of {len(files)} files: {name}", file=sys.stderr, flush=True)
            strike()
            struck.append(name)
            mend.append((time.monotonic() + given.away, mending))
        time.sleep(0.25)
    seconds = time.monotonic() - began
    for _, action in mend:
        action()
    _until(lambda: all(_ready(port) for port in cluster.ports.values()), 240)
    people.stop()
    wrong = people.violations + examined(cluster, files, kills=sum("killed" in name for name in struck))
    if left:
        wrong.append(f"not tried: {[name for name, *_ in left]}")
    figures = {"seconds": round(seconds), "files an hour": round(3600 * done / seconds), "struck": struck}
    return {**figures, "questions": dict(people.counts), "violations": wrong[:20]}


def examined(cluster: Cluster, files: list[Path], *, kills: int) -> list[str]:
    """What does not hold at the end."""
    from retrieval.library import Library
    from tests.tiny_model import shipped_model

    wrong = []
    both = [[one["source"] for one in _documents(port)] for port in cluster.ports.values()]
    names = sorted(path.name for path in files)
    wrong += [f"a server shows {Counter(shown)} " for shown in both if sorted(shown) != names]
    here, there = (
        httpx2.Client(base_url=f"http://127.0.0.1:{port}", headers=HEADERS) for port in cluster.ports.values()
    )
    here.post("/api/v1/collections", json={"name": "Seen"}).raise_for_status()
    told = time.monotonic() + SAME_WITHIN_SECONDS
    while "Seen" not in there.get("/api/v1/collections").text:
        if time.monotonic() > told:
            wrong.append("a collection of one server was not at the other in seconds")
            break
        time.sleep(0.1)
    os.environ.update(object_server.ACCESS)
    where = {"database_url": cluster.database, "store_url": cluster.places["CAIRN_STORE_URL"]}
    with Library.open(cluster.folder / "examined", shipped_model(), **where) as library:
        states = Counter(job.state for job in library.view.workspace.catalogue.jobs(limit=10 * len(files)))
        if set(states) != {"done"}:
            wrong.append(f"jobs: {dict(states)}")
        report = library.maintenance.verify()
        wrong += [f"damaged: {each}" for each in report.damage]
        again = cluster.shards_written() - len(library.view.workspace.catalogue.shards())
        if again > SHARD_OVERHEAD * (1 + kills):  # what was at work when it was struck
            wrong.append(f"{again} files of memory more were written than there are")
    return wrong


def _documents(port: int) -> list[dict[str, Any]]:
    """Without the sample that an empty library begins with."""
    url = f"http://127.0.0.1:{port}/api/v1/documents"
    found = httpx2.get(url, params={"limit": 500}, headers=HEADERS, timeout=60).raise_for_status().json()
    return [one for one in found["documents"] if "handbook" not in one["source"]]


def _done(cluster: Cluster) -> int:
    """Documents that are stored; asked of a server that answers."""
    for port in cluster.ports.values():
        with suppress(httpx2.HTTPError, KeyError, ValueError):
            return sum(one["state"] == "ready" for one in _documents(port))
    return 0


def _ready(port: int) -> bool:
    with suppress(httpx2.HTTPError):
        return httpx2.get(f"http://127.0.0.1:{port}/readyz", timeout=10).status_code == 200
    return False


def _until(condition: Callable[[], object], seconds: float) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends:
            raise TimeoutError(f"{seconds} s passed before {condition}")
        time.sleep(0.2)


def _kill(process: Any) -> None:
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    _until(lambda: not psutil.pid_exists(process.pid) or psutil.Process(process.pid).status() == "zombie", 60)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--characters", type=int, default=1500, help="of each file")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--askers", type=int, default=10)
    parser.add_argument("--calm", action="store_true", help="strike nothing")
    parser.add_argument("--slow", type=float, default=60.0, help="seconds for which the bucket is slow")
    parser.add_argument("--away", type=float, default=5.0, help="seconds after which what was killed comes back")
    parser.add_argument("--patience", type=float, default=3600.0, help="seconds until it counts as stuck")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # each request of the bucket
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing is left over
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="cairn-cluster-", ignore_cleanup_errors=True))
        )
        cluster = Cluster(folder, stack, given)
        result: dict[str, Any] = {"violations": ["it broke off"]}
        try:
            result = campaign(cluster, stack, given)
        finally:
            for log in sorted(folder.glob("*.log")) if result["violations"] else ():
                print(f"== {log.name}\n{log.read_text(errors='replace')[-20_000:]}", file=sys.stderr)
    kind = {name: getattr(given, name) for name in ("nodes", "files", "askers", "seed")}
    print(json.dumps({**machine.described(1), **kind, **result}))
    return 1 if result["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
