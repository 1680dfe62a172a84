"""Builds a library with its model from settings: the one place where parts are put together.

Imports of torch and transformers happen at the first call, so that `cairn --help` and `cairn list` start at once.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from app.errors import SettingsError
from app.writers import writer_opener

if TYPE_CHECKING:
    from app.settings import Settings
    from model.checkpoint.landmark_model import LandmarkModel
    from retrieval.library import Library
    from storage.blobs.protocol import Blobs
    from storage.recovery import RescueReport


def open_library(settings: Settings) -> Library:
    """The library in `settings.home`, made if new. The model is loaded when it is first needed, not here."""
    keep_quiet()
    from retrieval.extraction.extract import set_ocr, set_reader_limits
    from retrieval.library import Library

    set_reader_limits(int(settings.parser_memory_bytes))
    try:
        set_ocr(settings.ocr_languages if settings.ocr == "auto" else None)
    except ValueError as error:
        raise SettingsError(f"CAIRN_OCR_LANGUAGES: {error}") from error
    prepare_home(settings.home)
    return Library.open(
        settings.home,
        lambda: load_model(settings),
        database_url=settings.database_url,
        lease_seconds=settings.lease_seconds,
        store_url=settings.store_url,
        store_cache_bytes=int(settings.store_cache),
        kv_dtype=settings.kv_dtype,
        index=settings.index,
        block_cache_bytes=int(settings.block_cache_bytes),
        threads=settings.threads,
        reader=settings.span_reader,
        writer=writer_opener(settings),
    )


def server_token(settings: Settings) -> str | None:
    """The token that opens a server of these settings: their own, or, if they name no secret and the server is for this
    machine alone, the token of the home's owner. None: a password, accounts or single sign-on open it."""
    from app.auth import is_loopback, owner_token

    if settings.token or settings.password or settings.oidc_issuer or not is_loopback(settings.host):
        return settings.token
    prepare_home(settings.home)
    return owner_token(settings.home)


def rescue_catalogue(settings: Settings) -> RescueReport | None:
    """Make the catalogue of `settings.home` anew; None if that is not needed. Raises SettingsError for PostgreSQL's."""
    from retrieval.errors import catalogue_errors
    from storage.catalogue.database import Database
    from storage.recovery import needs_rescue, rescue

    with catalogue_errors():
        home, blobs = _home_and_store(settings)
        path = Database(_place_of_catalogue(settings)).path
    if path is None:
        raise SettingsError(
            "Only a catalogue in SQLite can be rescued. Restore this one with your database server's tools, or with "
            "`cairn restore FILE` from a copy that `cairn backup FILE` made."
        )
    return rescue(path, home, blobs) if needs_rescue(path, home, blobs) else None


def backup_catalogue(settings: Settings, path: Path) -> Path:
    """Copy the catalogue into one file. Raises SettingsError if there is something at `path`."""
    from contextlib import closing

    from retrieval.errors import catalogue_errors
    from storage.backups import copy_catalogue
    from storage.catalogue import Catalogue

    if path.exists():
        raise SettingsError(f"There is something at {path} already. Choose another name for the copy.")
    with catalogue_errors():
        home, blobs = _home_and_store(settings)
        with closing(Catalogue.open(_place_of_catalogue(settings), home, blobs=blobs)) as catalogue:
            return copy_catalogue(catalogue.database, path)


def restore_catalogue(settings: Settings, copy: Path, *, anyway: bool = False) -> RescueReport:
    """Put a copy in place of the catalogue; `anyway`: also of another home's. Raises SettingsError without a copy."""
    from retrieval.errors import catalogue_errors
    from storage.recovery import restore

    if not copy.is_file():
        raise SettingsError(f"There is no file {copy}. `cairn restore` takes what `cairn backup` made.")
    with catalogue_errors():
        home, blobs = _home_and_store(settings)
        return restore(copy.resolve(), _place_of_catalogue(settings), home, blobs, anyway=anyway)


def _home_and_store(settings: Settings) -> tuple[Path, Blobs]:
    from storage.blobs.s3 import open_blobs

    prepare_home(settings.home)
    home = settings.home.resolve()
    return home, open_blobs(settings.store_url, home, cache_bytes=int(settings.store_cache))


def _place_of_catalogue(settings: Settings) -> str | Path:
    return settings.database_url or settings.home.resolve() / "cairn.sqlite3"


def load_model(settings: Settings) -> LandmarkModel:
    """The checkpoint that the settings name, on their device. Raises SettingsError with what to change."""
    keep_quiet()
    from model.checkpoint.load import load_backbone

    check_model(settings.model)
    device = None if settings.device == "auto" else settings.device
    dtype = None if settings.dtype == "auto" else settings.dtype
    try:
        return load_backbone(
            settings.model,
            device=device,
            dtype=dtype,
            block_size=settings.block_size,
            query_prefix=settings.query_prefix,
            passage_prefix=settings.passage_prefix,
        )
    except (AssertionError, RuntimeError) as error:  # how torch says that a device is missing or unknown
        if device is None:
            raise
        raise SettingsError(
            f"The model cannot run on device {device!r}: {str(error).splitlines()[0]} "
            "Set CAIRN_DEVICE to cpu or auto; `cairn doctor` shows which devices there are."
        ) from error


def check_model(model: str) -> None:
    """Refuse a path without a checkpoint, before anything heavy is loaded. `org/model` is left to the hub."""
    path = Path(model).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise SettingsError(
                f"{path} contains no checkpoint: config.json is missing. --model takes a checkpoint's folder."
            )
        return
    looks_like_path = (
        path.is_absolute() or model.startswith((".", "~")) or model.count("/") != 1 or path.parent.is_dir()
    )
    if path.exists() or looks_like_path:
        from model.checkpoint.adapter import SHIPPED, find_adapter

        if find_adapter(model) is not None:
            return
        raise SettingsError(
            f"There is no checkpoint at {path}: it is not a folder. --model takes a checkpoint's folder, a name on the "
            f"Hugging Face hub or {', '.join(SHIPPED)}."
        )


def prepare_home(home: Path) -> None:
    """Make the home folder, readable by its owner only. Raises SettingsError when it cannot be used."""
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise SettingsError(
            f"The home folder {home} cannot be made: {error.strerror}. Choose another with --home."
        ) from error
    if not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        raise SettingsError(f"The home folder {home} cannot be written. Choose another with --home.")


def keep_quiet() -> None:
    """Call before transformers is first imported: no telemetry, no progress bars."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
