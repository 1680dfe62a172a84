"""Settings: where values come from, which wins, and what a person reads when one cannot be used."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import platformdirs
import pytest
from pydantic import ValidationError

from app import settings
from app.errors import SettingsError
from app.settings import SHIPPED_MODEL, Settings


def load_settings(environment: Mapping[str, str], **overrides: Any) -> Settings:
    """As in a process with this environment."""
    home = {"HOME": os.environ["HOME"]}
    with patch.dict(os.environ, home | dict(environment), clear=True):
        return settings.load_settings(**overrides)


def test_defaults_serve_this_machine_only_with_the_shipped_model() -> None:
    settings = load_settings({})
    assert (settings.host, settings.port) == ("127.0.0.1", 7860)
    assert settings.model == str(SHIPPED_MODEL) and SHIPPED_MODEL.parts[-2:] == ("model", "default")
    assert settings.home == Path(platformdirs.user_data_dir("cairn", appauthor=False))
    assert settings.password is None and settings.token is None


def test_options_win_over_the_environment_and_this_over_defaults(tmp_path: Path) -> None:
    env = {"CAIRN_PORT": "8000", "CAIRN_HOST": "::1", "UNRELATED": "x"}
    settings = load_settings(env, port=9000, host=None)
    assert (settings.port, settings.host) == (9000, "::1")


def test_the_process_environment_is_read_when_no_other_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAIRN_INDEX", "faiss")
    assert settings.load_settings().index == "faiss"


def test_sizes_may_have_units() -> None:
    assert load_settings({"CAIRN_BLOCK_CACHE_BYTES": "2GB"}).block_cache_bytes == 2_000_000_000
    assert load_settings({"CAIRN_BLOCK_CACHE_BYTES": "512MiB"}).block_cache_bytes == 512 << 20
    assert load_settings({"CAIRN_MAX_LIBRARY_BYTES": "1000"}).max_library_bytes == 1000


def test_home_is_absolute_and_knows_the_tilde(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert load_settings({"CAIRN_HOME": "~/notes"}).home == tmp_path / "notes"
    assert load_settings({"CAIRN_HOME": "here"}).home == tmp_path / "here"


def test_an_empty_variable_counts_as_unset() -> None:
    assert load_settings({"CAIRN_PORT": "", "CAIRN_PASSWORD": ""}).port == 7860


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CAIRN_PORT", "many"),
        ("CAIRN_PORT", "70000"),
        ("CAIRN_KV_DTYPE", "fp8"),
        ("CAIRN_INDEX", "fast"),
        ("CAIRN_DTYPE", "float8"),
        ("CAIRN_BLOCK_CACHE_BYTES", "-1"),
        ("CAIRN_BLOCK_SIZE", "1"),
        ("CAIRN_MAX_UPLOADS", "0"),
        ("CAIRN_QUESTIONS_AT_ONCE", "0"),
        ("CAIRN_HOME", "~nobody-here/cairn"),
        ("CAIRN_MODEL", "~nobody-here/model"),
    ],
)
def test_a_value_that_cannot_work_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"^{name} cannot be used: "):
        load_settings({name: value})


def test_a_refused_option_is_named_as_it_was_typed() -> None:
    with pytest.raises(SettingsError, match="^--port cannot be used"):
        load_settings({}, port=70000)


def test_a_mistyped_variable_is_refused_with_the_right_name() -> None:
    with pytest.raises(SettingsError, match="CAIRN_HOM is not a setting. Did you mean CAIRN_HOME?"):
        load_settings({"CAIRN_HOM": "/x"})
    with pytest.raises(SettingsError, match=re.escape("docs/settings.md")):
        load_settings({"CAIRN_ZZZZZZZZZ": "1"})


def test_variables_of_other_programs_are_not_spoken_of(caplog: pytest.LogCaptureFixture) -> None:
    load_settings({"TRACING": "1"})
    assert not caplog.records


def test_secrets_come_from_files_and_never_show(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("correct horse battery\n")
    settings = load_settings({"CAIRN_PASSWORD_FILE": str(file), "CAIRN_TOKEN": "0123456789abcdef"})
    assert settings.password == "correct horse battery" and settings.token == "0123456789abcdef"
    assert "horse" not in repr(settings) and "0123456789abcdef" not in str(settings)


def test_a_secret_file_must_be_there_hold_something_and_be_the_only_source(tmp_path: Path) -> None:
    file = tmp_path / "password"
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        load_settings({"CAIRN_PASSWORD_FILE": str(file)})
    file.write_text("\n")
    with pytest.raises(SettingsError, match="contains no secret"):
        load_settings({"CAIRN_PASSWORD_FILE": str(file)})
    file.write_bytes(b"\xff\xfe" * 9)
    with pytest.raises(SettingsError, match="contains no secret"):
        load_settings({"CAIRN_PASSWORD_FILE": str(file)})
    file.write_text("correct horse battery")
    with pytest.raises(SettingsError, match="both set"):
        load_settings({"CAIRN_PASSWORD_FILE": str(file), "CAIRN_PASSWORD": "another"})


def test_refused_secrets_are_not_repeated() -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({}, password=["a secret"])
    assert "a secret" not in str(caught.value)


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        load_settings({}).port = 1  # type: ignore[misc]


def test_every_setting_is_explained() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_the_key_of_a_writers_server_is_read_from_a_file_that_nobody_else_may_read(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sk-secret\n")
    file.chmod(0o644)
    with pytest.raises(SettingsError, match=f"chmod 600 {file}"):
        load_settings({"CAIRN_WRITER_KEY_FILE": str(file)})
    file.chmod(0o600)
    settings = load_settings({"CAIRN_WRITER_KEY_FILE": str(file)})
    assert settings.writer_key == "sk-secret" and "sk-secret" not in repr(settings)


def test_a_setting_of_the_release_before_is_named_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    assert load_settings({"CAIRN_WRITER_REPAIR": "0.1", "CAIRN_TRACING": ""}).port == 7860
    assert [record.getMessage().split()[0] for record in caplog.records] == ["CAIRN_WRITER_REPAIR"]


def test_a_former_name_works_with_a_warning_and_the_present_one_wins(caplog: pytest.LogCaptureFixture) -> None:
    assert load_settings({"CAIRN_SECOND_LOOK": "false"}).span_reader is False
    assert "CAIRN_SECOND_LOOK is called CAIRN_SPAN_READER now" in caplog.text
    assert load_settings({"CAIRN_SECOND_LOOK": "false", "CAIRN_SPAN_READER": "true"}).span_reader is True
    assert load_settings({"CAIRN_SECOND_LOOK": ""}).span_reader is True
    assert load_settings({}, second_look=False).span_reader is False
    assert load_settings({"CAIRN_HOT_BYTES": "5"}).block_cache_bytes == 5
    assert load_settings({"CAIRN_READER_MEMORY_BYTES": "1GiB"}).parser_memory_bytes == 1 << 30
