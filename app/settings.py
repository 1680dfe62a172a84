"""Settings: what a user may choose outside a command, read once from CAIRN_* variables.

- Nothing else reads the environment. Frozen: below `app`, functions take the values that they use.
- Secrets may come from files: CAIRN_PASSWORD_FILE, CAIRN_TOKEN_FILE, CAIRN_METRICS_TOKEN_FILE; CAIRN_WRITER_KEY_FILE
  and CAIRN_OIDC_CLIENT_SECRET_FILE (mode 0600).
- A CAIRN_* variable that is no setting is an error, not a typo that goes unnoticed.
"""

from __future__ import annotations

import difflib
import logging
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import platformdirs
from pydantic import AfterValidator, ByteSize, Field, PositiveInt, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.errors import SettingsError

PREFIX = "CAIRN_"
SHIPPED_MODEL = Path(__file__).resolve().parent.parent / "model" / "default"
SECRETS = ("password", "token", "writer_key", "oidc_client_secret", "metrics_token")
PRIVATE = ("writer_key", "oidc_client_secret")
"""Secrets of other servers: only their owner may read their files."""
SECRET_FILE_LIMIT = 4096
RETIRED = frozenset({"max_connections_each", "reader_processes", "tracing", "watch_seconds", "writer_repair"})
"""Settings of the release before that nobody could be advised how to set: named in a warning, and ignored."""

RENAMED = {
    "second_look": "span_reader",
    "hot_bytes": "block_cache_bytes",
    "reader_memory_bytes": "parser_memory_bytes",
}
"""Former names of settings, which work for one release, with a warning."""

log = logging.getLogger("cairn.settings")


def _expanded(path: str | Path) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ValueError(f"this machine does not know whose home {path} is in") from error


def _existing(model: str) -> str:
    path, adapter = _expanded(model), _expanded(model.partition("@")[0])  # behind an @: its base
    if (path.is_absolute() or model.startswith(".")) and not path.exists() and not adapter.exists():
        raise ValueError(f"there is nothing at {model}")
    return model


Folder = Annotated[Path, AfterValidator(lambda path: _expanded(path).absolute())]


def default_home() -> Path:
    return Path(platformdirs.user_data_dir("cairn", appauthor=False))


class Settings(BaseSettings):
    """All settings. Sizes may be written as `2GB`, `500MiB` or in bytes. Use `load_settings`, which refuses typos."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,  # as Docker and systemd pass what is unset
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
    )

    home: Folder = Field(default_factory=default_home, description="Folder for all data: catalogue, memory, originals.")
    model: Annotated[str, AfterValidator(_existing)] = Field(
        default=str(SHIPPED_MODEL),
        min_length=1,
        description="Folder of the checkpoint, its name on the Hugging Face hub, `smollm2-landmark`, or ADAPTER@BASE.",
    )
    writer: str | None = Field(
        default=None,
        description="Who words answers: a chat checkpoint's folder or hub name, or the address of an OpenAI-compatible "
        "server (`http://localhost:11434/v1#qwen3:4b`); unset: answers are quoted.",
    )
    writer_key: str | None = Field(default=None, repr=False, description="Key of the writer's server.")
    writer_timeout: float = Field(default=120.0, gt=0, description="Seconds that the writer's server may be silent.")
    writer_memory: ByteSize = Field(
        default=ByteSize(10_000_000_000), ge=0, description="Disk for what local writers keep of passages."
    )
    writer_ahead: bool = Field(
        default=False, description="Let a local writer read new documents at once, not when it is first asked."
    )
    writer_weights: Literal["int8", "nf4"] | None = Field(
        default=None,
        description="Keep a local writer's weights in 8 or 4 bits, with `pip install cairn[int8]` or `cairn[nf4]`; "
        "unset: as the checkpoint has them.",
    )
    block_size: int = Field(
        default=64,
        ge=2,
        le=4096,
        description="Tokens in a block, for checkpoints that were not trained with landmarks.",
    )
    query_prefix: str | None = Field(
        default=None,
        description="Text before every question, for encoders that were trained with one (`query: `); unset: what the "
        "checkpoint's files say.",
    )
    passage_prefix: str | None = Field(
        default=None, description="Text before every passage (`passage: `), likewise; documents are read with it."
    )
    device: str = Field(
        default="auto", min_length=1, description="`auto` (the GPU if there is one), `cpu`, `cuda`, `cuda:1`."
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto", description="Data type of the model's weights."
    )
    threads: Literal["auto"] | PositiveInt = Field(
        default="auto",
        description="Processor threads to compute with; `auto`: one for each core that other programs leave idle.",
    )
    span_reader: bool = Field(
        default=True,
        description="Read the passages found together with the question before a sentence is quoted; `false`: it is "
        "chosen by stored keys, by names and by versions, and blocks have no vectors.",
    )
    kv_dtype: Literal["auto", "bf16", "fp16", "fp32", "int8", "int4", "k4v2"] = Field(
        default="auto",
        description="Data type of stored keys and values (`k4v2`: 4 bits for keys, 2 for values); `auto`: that of the "
        "memory that the home holds, in a new home `k4v2` for checkpoints that quote (the shipped one), else `bf16`.",
    )
    index: Literal["auto", "exact", "mapped", "faiss"] = Field(
        default="auto",
        description="How landmarks are searched; `auto`: `exact` in RAM, and `mapped`, with the same result, in a file "
        "beyond 32,768 blocks (some 2 million tokens); `faiss` is approximate.",
    )
    block_cache_bytes: ByteSize = Field(default=ByteSize(1 << 30), ge=0, description="RAM for recently read blocks.")
    database_url: str | None = Field(
        default=None, description="SQLAlchemy URL of the catalogue; unset: `cairn.sqlite3` in the home folder."
    )
    lease_seconds: float = Field(
        default=60.0,
        ge=1,
        description="How long a worker may be silent before its document is given to another; the same for all.",
    )
    jobs: bool = Field(default=True, description="Let `cairn serve` read documents; `cairn work` does in any case.")
    store_url: str | None = Field(
        default=None,
        description="Where memory and originals lie: `s3://bucket/prefix`, with `?endpoint=https://host` and "
        "`&region=name` where they are needed (see object-store.md); unset: in the home folder.",
    )
    store_cache: ByteSize = Field(
        default=ByteSize(20_000_000_000),
        ge=0,
        description="Disk for what was read of a bucket lately; what was not used for longest leaves.",
    )
    trash_days: float = Field(
        default=7.0, ge=0, le=3650, description="How long `cairn gc` keeps what it swept, in the home's `trash`."
    )
    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="Address to serve on; any but this machine's own needs a password or accounts.",
    )
    port: int = Field(default=7860, ge=0, le=65535, description="Port to serve on; 0 picks a free one.")
    password: str | None = Field(
        default=None, repr=False, description="Password of the web UI, plain or as argon2 hash; without accounts."
    )
    token: str | None = Field(
        default=None, repr=False, description="Bearer token for programs (HTTP API, MCP); without accounts."
    )
    oidc_issuer: str | None = Field(
        default=None, description="Issuer of OpenID Connect at which people sign in (`https://id.example/realms/all`)."
    )
    oidc_client_id: str | None = Field(default=None, description="What this server is called there.")
    oidc_client_secret: str | None = Field(
        default=None, repr=False, description="Its secret there; unset for a public client."
    )
    oidc_address: str | None = Field(
        default=None,
        description="Address under which people open this server (`https://library.example`); it is registered there "
        "with `/login/sso/callback` behind it.",
    )
    oidc_title: str = Field(
        default="single sign-on", min_length=1, max_length=60, description="What the button calls it: Sign in with ..."
    )
    oidc_scopes: str = Field(default="openid profile email", description="What is asked for there.")
    oidc_username_claim: str = Field(
        default="preferred_username", min_length=1, description="Claim that names new accounts."
    )
    oidc_groups_claim: str | None = Field(
        default=None, description="Claim with a person's groups, with which collections can be shared; often `groups`."
    )
    oidc_allowed_groups: str = Field(
        default="",
        description="Groups, separated by commas, of which one is needed to get in; unset: nobody needs any.",
    )
    oidc_new_accounts: bool = Field(
        default=True, description="Make an account for whoever signs in there for the first time."
    )
    oidc_link_names: bool = Field(
        default=False,
        description="Whoever has an existing account's name there gets that account. Only where people cannot choose "
        "their names there.",
    )
    oidc_session_hours: float = Field(
        default=12.0, gt=0, le=168, description="How long people stay signed in after signing in there."
    )
    metrics_token: str | None = Field(
        default=None,
        repr=False,
        description="Bearer token that opens /metrics and nothing else; needed for it where there are accounts.",
    )
    log_format: Literal["text", "json"] = Field(
        default="text",
        description="The log of servers and workers: lines for people, or a JSON object a line and one a request.",
    )
    drain_seconds: float = Field(
        default=30.0, ge=0, le=3600, description="How long answers may go on after the server is told to end (SIGTERM)."
    )
    watch: str = Field(
        default="", description="Folders to follow while serving, separated by colons (semicolons on Windows)."
    )
    max_upload_bytes: ByteSize = Field(default=ByteSize(200_000_000), ge=1, description="Largest upload.")
    max_uploads: int = Field(
        default=100, ge=1, description="Most files that one person may have sent without starting them."
    )
    max_library_bytes: ByteSize | None = Field(
        default=None, description="Uploads are refused once the library is this large; unset: no limit."
    )
    min_free_bytes: ByteSize = Field(
        default=ByteSize(1_000_000_000), ge=0, description="Free disk space that uploads must leave."
    )
    questions_at_once: int = Field(
        default=4, ge=1, le=64, description="Questions answered at the same time, of different people."
    )
    questions_at_once_each: int = Field(
        default=1, ge=1, le=64, description="Questions of one person answered at the same time."
    )
    max_questions: int = Field(default=16, ge=1, le=1000, description="Most questions of one person that may wait.")
    max_jobs: int = Field(
        default=2000, ge=1, description="Most documents of one person that may wait to be stored (HTTP)."
    )
    parser_memory_bytes: ByteSize = Field(
        default=ByteSize(4 << 30), ge=1 << 29, description="Memory that processes which read files may take in all."
    )
    ocr: Literal["auto", "off"] = Field(
        default="auto",
        description="Recognise text in pictures: `auto`, on pages without text and in pictures; or `off`.",
    )
    ocr_languages: str = Field(
        default="eng",
        min_length=3,
        description="Languages of text in pictures, as `eng+deu`; all but `eng` are packages of the system "
        "(`tesseract-ocr-deu`).",
    )
    max_connections: int = Field(default=1000, ge=16, description="Most connections to the server at the same time.")
    proxies: str = Field(
        default="",
        description="Addresses of reverse proxies whose X-Forwarded headers are trusted, separated by commas.",
    )


def load_settings(**overrides: Any) -> Settings:
    """Settings of this process. `overrides` (not None) win over the environment, which wins over the defaults.

    Raises SettingsError naming the variable and what it may be.
    """
    chosen = {RENAMED.get(name, name): value for name, value in overrides.items() if value is not None}
    _refuse_unknown_variables()
    try:
        return Settings(**(_renamed_variables() | _secrets_from_files() | chosen))
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        source = f"--{name.replace('_', '-')}" if name in chosen else PREFIX + name.upper()
        raise SettingsError(f"{source} cannot be used: {first['msg'].removeprefix('Value error, ')}.") from None


def _refuse_unknown_variables() -> None:
    """pydantic-settings looks up the names it knows and never sees the others."""
    known = [PREFIX + name.upper() for name in Settings.model_fields]
    known += [f"{PREFIX}{name.upper()}_FILE" for name in SECRETS] + [PREFIX + name.upper() for name in RENAMED]
    for variable, value in os.environ.items():
        if not variable.startswith(PREFIX) or not value:
            continue
        if variable.removeprefix(PREFIX).lower() in RETIRED:
            log.warning("%s is no setting any more and is ignored; the next release refuses it.", variable)
        elif variable not in known:
            near = difflib.get_close_matches(variable, known, n=1)
            hint = f"Did you mean {near[0]}?" if near else "docs/settings.md lists them all."
            raise SettingsError(f"{variable} is not a setting. {hint}")


def _renamed_variables() -> dict[str, str]:
    """Values of settings that are given under their former names alone."""
    given = {}
    for name, present in RENAMED.items():
        former, variable = PREFIX + name.upper(), PREFIX + present.upper()
        if value := os.environ.get(former):
            log.warning("%s is called %s now; the next release refuses the former name.", former, variable)
            if not os.environ.get(variable):
                given[present] = value
    return given


def _secrets_from_files() -> dict[str, str]:
    secrets = {}
    for name in SECRETS:
        variable = f"{PREFIX}{name.upper()}"
        if file := os.environ.get(f"{variable}_FILE"):
            if os.environ.get(variable):
                raise SettingsError(f"{variable} and {variable}_FILE are both set; unset one of them.")
            if name in PRIVATE:
                _check_private(f"{variable}_FILE", Path(file))
            secrets[name] = _secret(f"{variable}_FILE", Path(file))
    return secrets


def _check_private(variable: str, path: Path) -> None:
    if path.exists() and path.stat().st_mode & 0o077:
        raise SettingsError(f"{variable} names {path}, which others may read. Run `chmod 600 {path}`.")


def _secret(variable: str, path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{variable} names {path}, which cannot be read: {error.strerror}.") from error
    secret = content[:SECRET_FILE_LIMIT].decode("utf-8", errors="strict").strip() if content.isascii() else ""
    if not secret or len(content) > SECRET_FILE_LIMIT:
        raise SettingsError(
            f"{variable} names {path}, which contains no secret: one line of ASCII characters is expected."
        )
    return secret
