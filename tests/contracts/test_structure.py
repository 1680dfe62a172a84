"""Functions stay small, imports run in no circle, tests keep to what is public, and the documentation names only what
exists."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("app", "model", "retrieval", "storage")
FILES = sorted(path for package in (*PACKAGES, "research") for path in (ROOT / package).rglob("*.py"))
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]

MOST_FUNCTION_LINES = 60

# A path in code quotes: from a top folder on, perhaps with a name in it; and what merely looks like one.
_PATH = re.compile(r"`((?:app|model|retrieval|storage|tests|benchmarks|docs)/[\w/.-]*)(?:::(\w+)(?:\.\w+)*)?`")
# Records of what was measured name files of their time.
_HISTORY = ("docs/experiments.md", "benchmarks/results/")


@pytest.fixture(scope="module")
def nodes() -> dict[Path, list[ast.AST]]:
    """Of all `FILES`, parsed once: it takes seconds."""
    return {path: _nodes(path) for path in FILES}


def _nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def test_no_function_is_long(nodes: dict[Path, list[ast.AST]]) -> None:
    long = {}
    for path in FILES:
        for node in nodes[path]:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = (node.end_lineno or 0) - node.lineno + 1
                name = f"{_relative(path)}::{node.name}"
                if lines > MOST_FUNCTION_LINES:
                    long[name] = lines
    assert long == {}


def test_a_library_is_spoken_to_by_nouns_that_the_guide_names() -> None:
    tree = ast.parse((ROOT / "retrieval" / "library.py").read_text(encoding="utf-8"))
    (library,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    names = {node.name for node in library.body if isinstance(node, ast.FunctionDef)}
    (init,) = (node for node in library.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    assigned = {
        node.attr for node in ast.walk(init) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    public = {name for name in names | assigned if not name.startswith("_")}
    assert len(public) <= 24, "what is new is said of a noun"
    guide = (ROOT / "docs" / "user.md").read_text(encoding="utf-8").split("## In Python")[1].split("\n## ")[0]
    nouns = {"documents", "jobs", "collections", "answers"}
    for noun in nouns:
        methods = re.findall(r"^    def ([a-z]\w*)", (ROOT / "retrieval" / f"{noun}.py").read_text(), re.MULTILINE)
        row = next(line for line in guide.splitlines() if line.startswith(f"| `library.{noun}`"))
        assert set(methods) <= set(re.findall(r"\w+", row)), noun
    assert nouns <= public


def test_no_files_import_each_other_in_a_circle() -> None:
    """Imports inside functions count, and so do those for the type checker alone."""
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=False, cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imported) > len(FILES) / 2
    TopologicalSorter(imported).prepare()  # raises CycleError, which names the circle


def test_no_code_unpickles_anything(nodes: dict[Path, list[ast.AST]]) -> None:
    """`import pickle` is refused by the import contracts; torch and numpy could do it behind our back."""
    for path in FILES:
        for node in nodes[path]:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                name = f"{node.value.id}.{node.attr}"
                assert name not in ("torch.load", "torch.save"), f"{_relative(path)} calls {name}"
            if isinstance(node, ast.keyword):
                assert node.arg not in ("allow_pickle", "trust_remote_code") or (
                    isinstance(node.value, ast.Constant) and node.value.value is False
                ), f"{_relative(path)} passes {node.arg}"


def test_no_checkpoint_is_opened_with_its_own_code(nodes: dict[Path, list[ast.AST]]) -> None:
    """Unless it is told not to, transformers asks on standard input, and a "y" runs what the checkpoint brings."""
    opened = 0
    for path in (*FILES, *(ROOT / "benchmarks").rglob("*.py")):
        for node in nodes.get(path) or _nodes(path):
            function = node.func if isinstance(node, ast.Call) else None
            if not isinstance(function, ast.Attribute) or function.attr != "from_pretrained":
                continue
            if isinstance(function.value, ast.Name) and function.value.id.startswith("Auto"):
                assert isinstance(node, ast.Call)
                assert "trust_remote_code" in [one.arg for one in node.keywords], f"{_relative(path)}:{node.lineno}"
                opened += 1
    assert opened > 5


def test_tests_reach_into_nothing_private_but_of_the_package_that_they_test(nodes: dict[Path, list[ast.AST]]) -> None:
    """tests/retrieval/index tests what lies below retrieval/index. Names that nobody here gives are of other projects:
    `os._exit`."""
    homes = defaultdict(set)
    for path in FILES:
        for name in _given_names(nodes[path]):
            homes[name].add(_relative(path.parent).replace("research/train", "research") + "/")
    tested = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    reaches = {
        f"{_relative(path)}:{line} {name}"
        for path in tested
        for line, name in _private_names_of_others(_nodes(path))
        if name in homes and not any(home.startswith(_relative(path.parent)[6:] + "/") for home in homes[name])
    }
    assert reaches == set() and len(tested) > 100 and len(homes) > 1000


def _given_names(nodes: list[ast.AST]) -> Iterator[str]:
    """Of what a file defines and assigns."""
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Store):
            yield node.attr if isinstance(node, ast.Attribute) else node.id


def _private_names_of_others(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """The line and the name, wherever one that begins with an underscore is read of anything but `self`, imported, or
    replaced by name: `monkeypatch.setattr("package.module._name", ...)`."""
    for node in nodes:
        names = list[str]()
        if isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id == "self"):
            names = [node.attr]
        elif isinstance(node, ast.ImportFrom):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.Call) and _called(node.func) in ("setattr", "getattr", "delattr"):
            names = [one.value for one in node.args[:2] if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        for name in names:
            last = name.rpartition(".")[2]
            if last.startswith("_") and not last.startswith("__"):
                yield node.lineno, last


def _called(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_says_that_it_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_document_names_exists(document: Path) -> None:
    if _relative(document).startswith(_HISTORY):
        pytest.skip("a record of its time")
    for path, name in _PATH.findall(document.read_text(encoding="utf-8")):
        assert (ROOT / path).exists(), f"{document.name} names {path}"
        if name:
            assert name in _names(ROOT / path), f"{document.name} names {path}::{name}"


def _names(path: Path) -> set[str]:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}


def _relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
