"""Presets: a run as a TOML file. Tables: [architecture] (from scratch only), [rows], [training], [lora] (fine-tuning
only).
"""

import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from research.train.data.packing import Grid, TargetRule
from research.train.engine.settings import TrainingSettings

_FOLDER = Path(__file__).parent / "presets"
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A Llama-family network made from nothing."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    max_position_embeddings: int
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-5
    initializer_range: float = 0.02
    tie_word_embeddings: bool = False
    pad_vocab_to: int = 0  # rows of the embedding at least; 0: as many as the tokenizer has
    residual_scale: bool = False  # what each layer adds to the residual stream starts smaller by sqrt(2 x layers)


@dataclass(frozen=True, kw_only=True)
class RowSettings:
    """The form of a micro-batch, before a tokenizer is known."""

    raw_tokens: int
    block_size: int
    rows: int
    targets: TargetRule = "skip-landmarks"
    landmark_at_end: bool = True

    def windows(self, block_size: int) -> dict[str, Any]:
        """How a network trained on such rows reads documents (`LandmarkConfig.window_blocks`, `context_blocks`): both
        together are as long as a row, so that no distance is new to it."""
        blocks = max(1, self.raw_tokens // (block_size - 1))
        return {"window_blocks": blocks - blocks // 3, "context_blocks": blocks // 3}

    def check_fits(self, max_positions: int) -> None:
        """Raises ValueError if a row, or a document read as rows are, needs more positions than the network has."""
        needed = sum(self.windows(self.block_size).values()) * self.block_size
        if needed > max_positions:
            raise ValueError(
                f"rows of {self.raw_tokens} tokens with landmarks need {needed} positions, but the network has "
                f"{max_positions}: shorten rows.raw_tokens, or raise architecture.max_position_embeddings."
            )

    def grid(self, landmark_token_id: int, eos_token_id: int, *, block_size: int | None = None) -> Grid:
        """`block_size`: of a checkpoint that already has one."""
        size = block_size or self.block_size
        return Grid(
            self.raw_tokens, size, landmark_token_id, self.targets, self.landmark_at_end, eos_token_id,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LoraSettings:
    """Low-rank fine-tuning through peft. The rows of the landmark token are trained in full."""

    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.0
    modules: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, kw_only=True)
class Preset:
    rows: RowSettings
    training: TrainingSettings
    architecture: Architecture | None = None
    lora: LoraSettings | None = None
    name: str = field(default="", compare=False)


def preset_names() -> list[str]:
    return sorted(file.stem for file in _FOLDER.glob("*.toml"))


def load_preset(name_or_file: str, overrides: list[str] | None = None) -> Preset:
    """A preset by its name or from a TOML file. `overrides` are "table.key=value" with a TOML value (a bare word is a
    string).

    Raises ValueError naming the unknown preset, table or key.
    """
    file = _FOLDER / f"{name_or_file}.toml" if name_or_file in preset_names() else Path(name_or_file)
    if not file.is_file():
        raise ValueError(f"No preset {name_or_file!r}: give one of {', '.join(preset_names())}, or a TOML file.")
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    for override in overrides or []:
        _override(tables, override)
    unknown = set(tables) - {"architecture", "rows", "training", "lora"}
    if unknown or "rows" not in tables or "training" not in tables:
        raise ValueError(f"{file}: tables [rows] and [training] are needed, {sorted(unknown) or 'none'} are unknown.")
    return Preset(
        rows=_build(RowSettings, tables["rows"], file),
        training=_build(TrainingSettings, tables["training"], file),
        architecture=_build(Architecture, tables["architecture"], file) if "architecture" in tables else None,
        lora=_build(LoraSettings, tables["lora"], file) if "lora" in tables else None,
        name=file.stem,
    )


def _build(kind: type[_T], table: dict[str, Any], file: Path) -> _T:
    known = {item.name for item in fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(set(table) - known):
        raise ValueError(f"{file}: unknown keys {', '.join(unknown)}; known are {', '.join(sorted(known))}.")
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    for key in ("clip_norm", "max_seconds"):  # TOML has no null: false stands for "none"
        if values.get(key) is False:
            values[key] = None
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(f"{file}: {error}") from error


def _override(tables: dict[str, Any], override: str) -> None:
    path, equals, value = override.partition("=")
    table, dot, key = path.strip().partition(".")
    if not equals or not dot:
        raise ValueError(f"{override!r} is not of the form table.key=value, for example training.steps=100.")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    tables.setdefault(table, {})[key] = parsed
