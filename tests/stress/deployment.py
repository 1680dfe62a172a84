"""The compose file's processes on this machine: a journey through its balancer, one server killed on the way.

    python tests/stress/deployment.py              # needs haproxy, PostgreSQL, moto (requirements-dev.txt)

Starts what docs/compose/compose.yaml names, with its commands and its environment: PostgreSQL, an S3 server (moto in
place of MinIO), two workers, two servers, and HAProxy with docs/compose/haproxy.cfg. Only places differ: ports of this
machine in place of Docker's names. Then, through the balancer, as a browser with its cookies: sign in, send a file, see
what it would cost, start it, see it read, ask, look at the evidence; then the server that the browser is bound to is
killed (SIGKILL) while a second file waits and an answer is being written. The same browser goes on: still signed in,
its file still waits, both documents are read, it asks and signs out. Every step is checked, prints one JSON object with
each step's seconds; exit status 1 if a step failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import httpx2
import machine
import yaml

from tests import object_server, postgresql
from tests.app.api_client import events
from tests.app.small_library import PAGES, QUESTION, RESERVOIR, WALKS, pdf_of

COMPOSE = ROOT / "docs" / "compose"
SECRETS = {"DATABASE_PASSWORD": "d" * 20, "STORE_PASSWORD": "s" * 20, "PASSWORD": "a quiet pile of stones"}
PATIENCE_SECONDS = 240.0


class Deployment:
    """The processes of the compose file."""

    def __init__(self, folder: Path, stack: ExitStack):
        self._folder, self._stack = folder, stack
        self._services = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
        self._places = {
            "CAIRN_DATABASE_URL": postgresql.Databases(stack.enter_context(postgresql.running_server())).take_bare(),
            "CAIRN_STORE_URL": object_server.new_store(),
            "CAIRN_PROXIES": "127.0.0.1",
            **object_server.ACCESS,
        }
        self.ports = {name: free_port() for name in ("server-one", "server-two", "balancer")}
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, service: str, number: int = 1) -> None:
        """One container's process: its command, its environment, a home of its own."""
        given = self._services[service]
        environment = {name: filled(str(value)) for name, value in given["environment"].items()}
        name = service if number == 1 else f"{service}-{number}"
        (self._folder / name).mkdir()
        image = {"CAIRN_HOME": str(self._folder / name), "CAIRN_HOST": "127.0.0.1", "PYTHONUNBUFFERED": "1"}
        here = {
            key: value for key, value in self._places.items() if key in environment or key not in ("CAIRN_PROXIES",)
        }
        port = {"CAIRN_PORT": str(self.ports[service])} if service in self.ports else {}
        outside = {key: os.environ[key] for key in ("PATH", "HOME", "OMP_NUM_THREADS", "TMPDIR") if key in os.environ}
        command = [sys.executable, *given["command"][1:]]
        self._run(name, command, {**outside, **image, **environment, **here, **port})

    def start_balancer(self) -> None:
        """haproxy.cfg as it is, but for Docker's names and their resolver."""
        config = (
            (COMPOSE / "haproxy.cfg")
            .read_text()
            .replace(":7860\n    option forwardfor", ":PORT\n    option forwardfor")
        )
        config = config.replace("bind :PORT", f"bind 127.0.0.1:{self.ports['balancer']}")
        config = config.replace(" resolvers docker init-addr none", "")
        for name in ("server-one", "server-two"):
            config = config.replace(f"{name}:7860", f"127.0.0.1:{self.ports[name]}")
        path = self._folder / "haproxy.cfg"
        path.write_text(config)
        subprocess.run(["haproxy", "-c", "-f", path], check=True, capture_output=True)
        self._run("balancer", ["haproxy", "-db", "-f", str(path)], dict(os.environ))

    def kill(self, name: str) -> None:
        self.running[name].kill()
        self.running[name].wait()

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    def _run(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        log = self._stack.enter_context((self._folder / f"{name}.log").open("wb"))
        process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        self.running[name] = process
        self._stack.callback(ended, process)


class Journey:
    """Steps with their seconds. A step that does not come about in time raises."""

    def __init__(self, client: httpx2.Client):
        self.client, self.seconds = client, dict[str, float]()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - began, 2)
        print(f"{name}: {self.seconds[name]} s", file=sys.stderr)

    def until(self, condition: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            try:
                if found := condition():
                    return found
            except (httpx2.HTTPError, KeyError):
                pass
            time.sleep(0.1)
        raise AssertionError("did not happen in time")

    def get(self, path: str) -> Any:
        return self.client.get(f"/api/v1/{path}").raise_for_status().json()

    def send(self, name: str) -> str:
        file = {"file": (name, pdf_of(PAGES[name]))}
        return str(self.client.post("/api/v1/uploads", files=file).raise_for_status().json()["id"])

    def start(self, upload: str) -> str:
        return str(self.client.post(f"/api/v1/uploads/{upload}/start", json={}).raise_for_status().json()["id"])

    def ask(self, question: str) -> dict[str, Any]:
        """The answer. Raises if the stream ends without one."""
        response = self.client.post("/api/v1/ask", json={"question": question}).raise_for_status()
        name, body = events(response.text)[-1]
        assert name == "answer", body
        return dict(body)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cairn-deployment-")))
        deployment = Deployment(folder, stack)
        client = stack.enter_context(httpx2.Client(base_url=deployment.url("balancer"), timeout=120))
        journey = Journey(client)
        try:
            walk(deployment, journey, stack)
            failed = ""
        except (AssertionError, httpx2.HTTPError) as error:
            failed = f"{type(error).__name__}: {error}"
            for log in sorted(folder.glob("*.log")):
                print(f"== {log.name}\n{log.read_text()[-3000:]}", file=sys.stderr)
    print(json.dumps({**machine.described(), "steps": journey.seconds, "failed": failed}, indent=1))
    sys.exit(bool(failed))


def walk(deployment: Deployment, journey: Journey, stack: ExitStack) -> None:
    client = journey.client
    with journey.step("all processes ready"):
        deployment.start("worker")
        deployment.start("worker", 2)
        for server in ("server-one", "server-two"):
            deployment.start(server)
        deployment.start_balancer()
        for server in ("server-one", "server-two", "balancer"):
            journey.until(lambda at=server: httpx2.get(f"{deployment.url(at)}/readyz").status_code == 200)
    with journey.step("sign in"):
        assert client.get("/api/v1/documents").status_code == 401
        assert client.post("/login", data={"password": SECRETS["PASSWORD"]}).status_code == 303
        assert client.get("/api/v1/documents").status_code == 200
    other = at_the_other(deployment, client, stack)
    with journey.step("the other server knows the session"):
        assert other.get("/api/v1/documents").status_code == 200
    with journey.step("send a file, see what it costs"):
        first = journey.send(RESERVOIR)
        journey.until(lambda: journey.get("uploads")["uploads"][0]["state"] == "ready")
        assert other.get("/api/v1/uploads").json()["uploads"][0]["estimate"]["pages"] == len(PAGES[RESERVOIR])
    with journey.step("start it, see it read"):
        job = journey.start(first)
        journey.until(lambda: other.get(f"/api/v1/jobs/{job}").json()["state"] == "done")
    with journey.step("ask, evidence, page"):
        answer = journey.ask(QUESTION)
        assert "1981" in answer["text"], answer["text"]
        document = answer["passages"][0]["document_id"]
        picture = client.get(f"/api/v1/documents/{document}/pages/1.png?width_px=600").raise_for_status()
        assert picture.headers["content-type"] == "image/png"
        assert other.get(f"/api/v1/answers/{answer['id']}").json()["text"] == answer["text"]
    with journey.step("a change at the other server reaches an open page"):
        journey.seconds["  of which until the page is told"] = told_after(client, other)
    second = journey.send(WALKS)
    with journey.step("kill the browser's server amid an answer, go on at the other"):
        bound = f"server-{client.cookies['cairn_server']}"
        asking = threading.Thread(target=lambda: cut_short(client), daemon=True)
        asking.start()
        time.sleep(0.05)
        deployment.kill(bound)
        journey.until(lambda: client.get("/api/v1/documents").status_code == 200)
        asking.join(60)
    with journey.step("the file that waited is started and read"):
        assert [each["id"] for each in journey.get("uploads")["uploads"]] == [second]
        job = journey.start(second)
        journey.until(lambda: journey.get(f"jobs/{job}")["state"] == "done")
    with journey.step("kill a worker; the other reads on"):
        deployment.kill("worker")
        third = {"file": ("walks.txt", " ".join(PAGES[WALKS]).encode())}
        sent = client.post("/api/v1/documents", files=third).raise_for_status().json()["jobs"][0]["id"]
        journey.until(lambda: journey.get(f"jobs/{sent}")["state"] == "done")
    with journey.step("ask again, past answers, sign out"):
        assert "forestry office" in journey.ask("Who built the tower on the eastern shore?")["text"]
        assert answer["id"] in {each["id"] for each in journey.get("answers")["answers"]}
        assert client.post("/logout").status_code == 303
        assert client.get("/api/v1/documents").status_code == 401
    with journey.step("told to stop, the last server and worker end by themselves"):
        left = [
            process for name, process in deployment.running.items() if process.poll() is None and name != "balancer"
        ]
        for process in left:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(60) for process in left] == [0] * len(left)


def at_the_other(deployment: Deployment, client: httpx2.Client, stack: ExitStack) -> httpx2.Client:
    """The same browser's requests, sent to the server to which it is not bound."""
    other = "server-two" if client.cookies["cairn_server"] == "one" else "server-one"
    cookies = {"cairn_session": client.cookies["cairn_session"]}
    return stack.enter_context(httpx2.Client(base_url=deployment.url(other), cookies=cookies, timeout=60))


def told_after(client: httpx2.Client, other: httpx2.Client) -> float:
    """Seconds from a change at one server to the event in a page that is open at the other."""
    with client.stream("GET", "/api/v1/events") as stream:
        lines = stream.iter_lines()
        for line in lines:  # what it is told first
            if line == "event: library":
                break
        changed = time.monotonic()
        other.post("/api/v1/collections", json={"name": "Water"}).raise_for_status()
        for line in lines:
            if line == "event: library":
                return round(time.monotonic() - changed, 2)
    raise AssertionError("the page was not told")


def cut_short(client: httpx2.Client) -> None:
    """An answer whose server is killed: the connection ends, and nothing else is expected of it."""
    try:
        client.post("/api/v1/ask", json={"question": "What is done in an emergency?"})
    except httpx2.HTTPError:
        return


def filled(value: str) -> str:
    """`${NAME:?}` as Docker Compose takes it from .env."""
    return re.sub(r"\$\{(\w+):\?\}", lambda found: SECRETS[found[1]], value)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def ended(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
