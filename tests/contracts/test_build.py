"""Makefile, Dockerfile and .ci/run: what they name exists, and they take the same steps."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
INSTRUCTIONS = [line for line in re.sub(r"\\\n", " ", DOCKERFILE).splitlines() if line and not line.startswith("#")]


def instructions(name: str) -> list[str]:
    return [line.removeprefix(name).strip() for line in INSTRUCTIONS if line.startswith(name + " ")]


def copied() -> list[str]:
    return [path for line in instructions("COPY") for path in line.split()[:-1] if not path.startswith("--")]


def make(*words: str) -> str:
    """What `make` would run, without running it; nothing is installed yet as far as it knows."""
    command = ["make", "--dry-run", "VENV=nowhere", *words]
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout


def test_every_path_that_the_image_copies_exists_and_is_let_through() -> None:
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert copied()
    for path in copied():
        assert (ROOT / path).exists(), path
        assert path in let_through, f".dockerignore keeps {path} out"


def test_the_image_holds_every_package() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {pattern.rstrip("*") for pattern in patterns} <= set(copied())


def test_the_image_takes_the_steps_of_the_makefile() -> None:
    runs = " && ".join(instructions("RUN"))
    steps = make("install")
    assert "make install" in runs
    for step in ("python3 -m venv", "-r requirements.txt"):
        assert step in steps and step in runs, step
    assert '"torch==2.13.0"' in steps and "grep '^torch==' requirements.txt" in runs


def test_the_image_serves_with_the_command_of_the_makefile() -> None:
    (command,) = instructions("CMD")
    words = json.loads(command)
    assert words == [".venv/bin/python", "-m", "app", "serve"]
    assert "nowhere/bin/python -m app serve --host 127.0.0.1 --port 7860" in make("app")


def test_the_image_has_one_volume_a_user_without_rights_and_a_health_check() -> None:
    assert instructions("VOLUME") == ["/data"] and "CAIRN_HOME=/data" in DOCKERFILE
    assert instructions("USER") == ["10001"]
    assert "/healthz" in instructions("HEALTHCHECK")[0] and instructions("EXPOSE") == ["7860"]
    for line in INSTRUCTIONS[INSTRUCTIONS.index("USER 10001") :]:
        assert "apt-get" not in line and (not line.startswith("COPY") or "--chown=cairn:cairn" in line)


def test_the_image_is_made_as_images_should_be() -> None:
    checked = subprocess.run([Path(sys.executable).with_name("hadolint"), ROOT / "Dockerfile"], capture_output=True)
    assert checked.returncode == 0, checked.stdout.decode()


def test_an_image_for_a_gpu_has_a_compiler() -> None:
    """Triton compiles kernels when they are first needed."""
    assert "in */cpu) ;; *) apt-get install -y --no-install-recommends gcc libc6-dev ;;" in instructions("RUN")[0]


def test_the_image_never_serves_others_without_a_password() -> None:
    assert "CAIRN_HOST=0.0.0.0" in DOCKERFILE
    assert not re.search(r"^(ENV|ARG).*(PASSWORD|TOKEN)", DOCKERFILE, re.MULTILINE)


def test_torch_is_installed_first_so_that_another_build_of_it_stays() -> None:
    lines = [line for line in make("install").splitlines() if "pip install" in line]
    assert [line.split()[-1] for line in lines] == ['"torch==2.13.0"', "requirements.txt", "."]


def test_one_command_from_nothing_makes_installs_and_tests() -> None:
    steps = make("test")
    order = ["-m venv", "torch==2.13.0", "-r requirements.txt", "--editable .", "-r requirements-dev.txt", "-m pytest"]
    places = [steps.index(step) for step in order]
    assert places == sorted(places)


def test_check_is_what_ci_runs() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    for target in ("test", "test-page", "test-research", "test-stress", "lint", "types", "contracts", "docs-check"):
        assert re.search(rf"^(?:nice )?make .*(?<![\w-]){target}(?![\w-])", script, re.MULTILINE), target
        assert re.search(rf"^check:.*\b{target}\b", MAKEFILE, re.MULTILINE), target
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


@pytest.mark.parametrize(
    ("target", "what"),
    [
        ("test", ["--ignore=tests/browser", "--ignore=tests/research", "--ignore=tests/stress"]),
        ("test-page", ["tests/browser"]),
        ("test-research", ["tests/research"]),
        ("test-stress", ["tests/stress"]),
    ],
)
def test_tests_of_the_page_of_the_laboratory_and_of_clusters_have_targets_of_their_own(
    target: str, what: list[str]
) -> None:
    make = ["make", "--dry-run", "--always-make", target]
    alone = {"PATH": os.environ["PATH"]}  # whatever the make that runs this was told
    told = subprocess.run(make, cwd=ROOT, env=alone, capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in told.splitlines() if " -m pytest " in line]
    assert line.split()[line.split().index("loadfile") + 1 :] == what


def test_what_runs_before_a_commit_is_what_make_runs() -> None:
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    checks = make("lint", "types", "contracts", "docs-check", "lint-web").replace("nowhere/", ".venv/")
    for hook in local["hooks"]:
        if hook["language"] == "pygrep":
            continue
        entry, target = hook["entry"], hook["entry"].removeprefix("make ")
        assert make(target) if entry != target else entry.split()[0] in checks, entry


@pytest.mark.parametrize("target", re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))
def test_every_make_target_explains_itself(target: str) -> None:
    assert re.search(rf"^{target}:.*## \S", MAKEFILE, re.MULTILINE)


@pytest.mark.parametrize("package", ["app", "model", "retrieval", "storage"])
def test_an_installation_holds_every_file_that_is_not_code(package: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = project["package-data"].get(package, [])
    packed = {path for pattern in patterns for path in (ROOT / package).glob(pattern)}
    listed = subprocess.run(["git", "ls-files", package], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = {ROOT / line for line in listed.splitlines() if not line.endswith(".py")}
    assert files <= packed, f"package-data in pyproject.toml leaves out {sorted(files - packed)}"
