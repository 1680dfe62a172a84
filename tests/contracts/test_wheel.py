"""What is installed is what runs from a clone: all code, and all files beside it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import httpx2
import pytest

ROOT = Path(__file__).resolve().parents[2]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
PACKAGES = ("app", "model", "retrieval", "storage")


@pytest.mark.parametrize("package", PACKAGES)
def test_a_wheel_takes_along_every_file_of_a_package(package: str) -> None:
    folder = ROOT / package
    files = {path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    code = {path for path in files if path.suffix == ".py"}
    assert all((path.parent / "__init__.py").is_file() for path in code), "a folder without one is no package"
    taken = {path for pattern in SETUPTOOLS["package-data"][package] for path in folder.glob(pattern)}
    assert files - code <= taken


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The folder in which a wheel was unpacked. It is built from a copy: building leaves folders behind."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("LICENSE", "README.md", "cairn.py", "pyproject.toml"):
        shutil.copy(ROOT / name, copy)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path, copy]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path / "installed")
    return tmp_path / "installed"


@pytest.mark.slow
def test_a_wheel_reads_a_document_answers_and_serves_its_page(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "dam.txt").write_text("The dam was finished in 1964 and raised in 1981.")
    elsewhere: dict[str, Any] = {
        "cwd": tmp_path,
        "env": {**os.environ, "PYTHONPATH": str(installed), "CAIRN_HOME": str(tmp_path / "home")},
        "text": True,
    }

    def cairn(*words: str) -> str:
        command = [sys.executable, "-m", "app", *words]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, **elsewhere).stdout

    where = [sys.executable, "-c", "import app, model, retrieval, storage; print(app.__file__)"]
    assert subprocess.check_output(where, **elsewhere).startswith(str(installed)), "not the clone's"
    assert "ingest" in cairn("--help")
    assert json.loads(cairn("ingest", "dam.txt", "--json"))["status"] == "done"
    assert "1981" in json.loads(cairn("ask", "When was the dam raised?", "--json"))["answer"]
    serve = [sys.executable, "-m", "app", "serve", "--port", "0", "--json"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, **elsewhere) as server:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        token = cairn("token").strip()
        page = httpx2.get(f"{url}/", headers={"Authorization": f"Bearer {token}"}, timeout=60, follow_redirects=True)
        server.terminate()
    assert page.status_code == 200 and "gradio" in page.text
