"""Settings -> library and model: what reaches them, and what is refused before anything heavy is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app import assembly
from app.errors import SettingsError
from app.settings import load_settings
from model.checkpoint import load
from retrieval.library import Library


def test_every_library_setting_reaches_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: dict[str, Any] = {}
    monkeypatch.setattr(Library, "open", classmethod(lambda _cls, home, _model, **rest: seen.update(home=home, **rest)))
    monkeypatch.setenv("CAIRN_DATABASE_URL", "sqlite:///x")
    monkeypatch.setenv("CAIRN_KV_DTYPE", "int8")
    monkeypatch.setenv("CAIRN_STORE_URL", "s3://bucket/library")
    monkeypatch.setenv("CAIRN_STORE_CACHE", "3GB")
    monkeypatch.setenv("CAIRN_LEASE_SECONDS", "45")
    assembly.open_library(load_settings(home=tmp_path / "new" / "home", index="exact", block_cache_bytes=5))
    assert seen == {
        "home": tmp_path / "new" / "home",
        "database_url": "sqlite:///x",
        "kv_dtype": "int8",
        "index": "exact",
        "block_cache_bytes": 5,
        "reader": True,
        "threads": "auto",
        "writer": None,
        "lease_seconds": 45.0,
        "store_url": "s3://bucket/library",
        "store_cache_bytes": 3_000_000_000,
    }
    assert (tmp_path / "new" / "home").stat().st_mode & 0o777 == 0o700


def test_the_model_is_loaded_with_its_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:

    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(load, "load_backbone", lambda *given, **named: calls.append((*given, named)))
    (tmp_path / "config.json").write_text("{}")
    path = str(tmp_path)
    assembly.load_model(load_settings(model=path))
    assembly.load_model(load_settings(model=path, device="cpu", dtype="bfloat16", block_size=32))
    no_prefixes = {"query_prefix": None, "passage_prefix": None}
    assert calls == [
        (path, {"device": None, "dtype": None, "block_size": 64, **no_prefixes}),
        (path, {"device": "cpu", "dtype": "bfloat16", "block_size": 32, **no_prefixes}),
    ]


def test_a_device_that_is_not_there_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_given: object, **_named: object) -> None:
        raise AssertionError("Torch not compiled with CUDA enabled")

    monkeypatch.setattr(load, "load_backbone", refuse)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(SettingsError, match="device 'cuda': Torch not compiled with CUDA enabled.*CAIRN_DEVICE"):
        assembly.load_model(load_settings(model=str(tmp_path), device="cuda"))


def test_a_path_without_a_checkpoint_is_refused_and_a_hub_name_is_not(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="config.json is missing"):
        assembly.check_model(str(tmp_path))
    for path in (tmp_path / "nothing", "./nothing", "~/nothing", "nothing", "a/b/c"):
        with pytest.raises(SettingsError, match="There is no checkpoint at"):
            assembly.check_model(str(path))
    assembly.check_model("some-organisation/some-model")


def test_an_adapter_is_named_by_its_name_or_its_folder_and_perhaps_a_base(tmp_path: Path) -> None:
    for file in ("config.json", "adapter.safetensors"):
        (tmp_path / file).write_text("{}")
    for name in ("smollm2-landmark", "smollm2-landmark@base/folder", str(tmp_path), f"{tmp_path}@some/base"):
        assembly.check_model(load_settings(model=name).model)


def test_a_home_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="cannot be made.*--home"):
        assembly.prepare_home(tmp_path / "file" / "home")


def test_a_home_may_have_any_name(tmp_path: Path) -> None:
    for name in ("what?now", "100%20", "a#b"):
        settings = load_settings(home=tmp_path / "homes" / name)
        with assembly.open_library(settings):
            pass
        assert (settings.home / "cairn.sqlite3").is_file()
        assert assembly.rescue_catalogue(settings) is None
        assert assembly.backup_catalogue(settings, tmp_path / f"{name}.copy").is_file()
    assert len(list((tmp_path / "homes").iterdir())) == 3
