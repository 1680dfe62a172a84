"""Every benchmark finds what it imports, and says at its top how it is run: by its path, from the repository's root."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAIN = 'if __name__ == "__main__"'
FILES = sorted((ROOT / "benchmarks").glob("*/*.py"))
PROGRAMS = [path for path in FILES if path.name != "__main__.py" and MAIN in path.read_text(encoding="utf-8")]


def loaded(program: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(program.parent), *sys.path])
    spec = importlib.util.spec_from_file_location(f"benchmark_{program.stem}", program)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_benchmark_says_how_it_is_run_and_finds_what_it_imports(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = ast.get_docstring(ast.parse(program.read_text(encoding="utf-8"))) or ""
    assert f"python {program.relative_to(ROOT)}" in usage
    loaded(program, monkeypatch)


@pytest.mark.parametrize(
    ("text", "answer", "is_held"),
    [
        ("It opens at Nine.", "nine", True),
        ("It opens at nineteen.", "nine", False),
        ("订单编号：10000149 发货日期", "10000149", True),
        ("共10000149元", "10000149", True),
        ("共100001490元", "10000149", False),
        ("发 货 日 期", "发货日期", True),
    ],
)
def test_an_answer_is_held_by_whole_words_and_by_letters_where_there_are_no_words(
    text: str, answer: str, is_held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = loaded(ROOT / "benchmarks" / "quality" / "held_out.py", monkeypatch)
    assert module.held_by({"answers": [answer]})([text]) == is_held


def test_every_part_of_the_gpu_check_runs_in_tiny_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = loaded(ROOT / "benchmarks" / "speed" / "gpu_check.py", monkeypatch)
    monkeypatch.setattr(module, "gpu_tests", lambda *, only_collected: {"only collected": only_collected})
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--check", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        module.main()
    (report,) = tmp_path.glob("*-gpu-check-tiny.md")
    text = report.read_text()
    assert ended.value.code == 0 and "failed" not in text, text
    assert all(f"## {part}" in text for part in ("tests", "kernels", "library", "training"))
    assert "| decided by | attention |" in text and "tokens a second, plain" in text
