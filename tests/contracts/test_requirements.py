"""pyproject.toml names every package that the code imports; requirements.txt pins them all, for any machine."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("app", "model", "retrieval", "storage")
# Imported by research only, behind the extra of that name.
TRAINING = ("accelerate", "bm25s", "matplotlib", "peft", "tqdm")
# Imported where they are asked for, behind an extra.
OPTIONAL = (*("bitsandbytes", "gguf", "obstore", "psycopg", "torchao", "triton"),)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PIN = re.compile(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*")


def requirements(*extras: str) -> list[Requirement]:
    groups = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][extra] for extra in extras)]
    return [Requirement(line) for group in groups for line in group]


def pins(file: str) -> dict[str, str]:
    lines = [line for line in (ROOT / file).read_text().splitlines() if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


@pytest.mark.parametrize(("file", "extras"), [("requirements.txt", ()), ("requirements-dev.txt", ("train", "dev"))])
def test_pins_satisfy_pyproject(file: str, extras: tuple[str, ...]) -> None:
    pinned = pins(file)
    for wanted in requirements(*extras):
        assert wanted.specifier.contains(pinned[canonicalize_name(wanted.name)]), wanted


@pytest.mark.parametrize("file", ["requirements.txt", "requirements-dev.txt"])
def test_pins_hold_for_any_machine(file: str) -> None:
    for line in (ROOT / file).read_text().splitlines():
        if line.startswith("#"):
            continue
        assert PIN.fullmatch(line), f"{line!r}: one exact version, no build tag, hash, address or option"
        assert not line.startswith(("nvidia-", "triton", "cuda-", "pytorch-triton")), (
            f"{line!r} belongs to one kind of GPU"
        )


def test_torch_is_pinned_to_the_documented_version_and_newer_ones_are_accepted() -> None:
    assert pins("requirements.txt")["torch"] == "2.13.0"
    (torch,) = (one for one in requirements() if one.name == "torch")
    assert "2.13.0" in torch.specifier and "2.14.1" in torch.specifier and "3.0" not in torch.specifier


def test_both_files_agree() -> None:
    runtime, development = pins("requirements.txt"), pins("requirements-dev.txt")
    assert {name: development.get(name) for name in runtime} == runtime


@cache
def imported(packages: tuple[str, ...] = PACKAGES) -> dict[str, str]:
    """Top-level name of every third-party import in the packages -> a file that has it."""
    found: dict[str, str] = {}
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and node.level == 0:
                    names = [node.module or ""]
                else:
                    continue
                for name in names:
                    top = name.partition(".")[0]
                    if top not in (*PACKAGES, "research") and top not in sys.stdlib_module_names:
                        found.setdefault(top, str(path.relative_to(ROOT)))
    return found


def test_every_imported_package_is_a_direct_dependency() -> None:
    distributions = packages_distributions()
    declared = {canonicalize_name(one.name) for one in requirements()}
    declared |= {canonicalize_name(name) for name in TRAINING}
    declared |= {canonicalize_name(name) for name in OPTIONAL}
    declared |= {"triton"}  # comes with torch where there is a GPU for it
    for name, path in imported((*PACKAGES, "research")).items():
        providers = {canonicalize_name(one) for one in distributions.get(name, [name])}
        assert providers & declared, f"{path} imports {name}, which pyproject.toml does not name"


def test_every_direct_dependency_is_imported() -> None:
    distributions = packages_distributions()
    used = {canonicalize_name(one) for name in imported() for one in distributions.get(name, [name])}
    unused = {canonicalize_name(one.name) for one in requirements()} - used
    # FastAPI imports python-multipart when a form arrives, pypdfium2 imports Pillow when a page is drawn.
    assert unused <= {"python-multipart", "pillow"}, f"pyproject.toml names {sorted(unused)}, which nothing imports"
