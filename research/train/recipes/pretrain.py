"""Pre-training from scratch: a new network on the block grid of a corpus."""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from model.checkpoint.config import LANDMARK_TOKEN, LandmarkConfig
from model.checkpoint.landmark_model import LandmarkModel
from research.train.data.documents import open_token_file, single_token_file
from research.train.data.packing import Rows, StreamedRows, TokenRows
from research.train.engine.batches import Batches
from research.train.engine.trainer import Evaluation, TrainingResult, run_training
from research.train.losses.next_token import next_token_loss
from research.train.recipes.export import export, training_device
from research.train.recipes.presets import Architecture, Preset, RowSettings

END_OF_TEXT = "<|endoftext|>"


def pretrain(
    preset: Preset,
    tokenizer: PreTrainedTokenizerBase,
    data: Sequence[Path],
    folder: Path,
    *,
    heldout: Sequence[Path] = (),
    heldout_rows: int = 64,
    device: str | None = None,
    progress_bar: bool = True,
) -> TrainingResult:
    """Train a new model of the preset's architecture; the model lies in `folder/model` afterwards.

    `data` and `heldout` are text files, or one token file (`.bin`) each.
    """
    if preset.architecture is None:
        raise ValueError(f"Preset {preset.name} has no [architecture]: it is for fine-tuning.")
    architecture, seed = preset.architecture, preset.training.seed
    preset.rows.check_fits(architecture.max_position_embeddings)
    model = new_model(architecture, tokenizer, preset.rows, seed=seed).to(device or training_device())
    batches = rows_of(data, model, preset.rows, seed=seed)
    evaluate = heldout_loss(rows_of(heldout, model, preset.rows, seed=0), heldout_rows) if heldout else None
    result = run_training(
        model, batches, next_token_loss, preset.training, folder, evaluate=evaluate, progress_bar=progress_bar
    )
    export(model, folder, lambda: new_model(architecture, tokenizer, preset.rows, seed=seed))
    return result


def new_model(
    architecture: Architecture, tokenizer: PreTrainedTokenizerBase, rows: RowSettings, *, seed: int
) -> LandmarkModel:
    """A random Llama with landmark attention, in float32. A landmark is added to the tokenizer if missing."""
    torch.manual_seed(seed)
    if tokenizer.eos_token_id is None:
        raise ValueError("The tokenizer has no end-of-text token, which separates documents; set its eos_token.")
    tokenizer.add_tokens([LANDMARK_TOKEN], special_tokens=True)
    landmark = tokenizer.get_vocab()[LANDMARK_TOKEN]
    config = LlamaConfig(
        vocab_size=max(len(tokenizer), architecture.pad_vocab_to),
        hidden_size=architecture.hidden_size,
        intermediate_size=architecture.intermediate_size,
        num_hidden_layers=architecture.num_hidden_layers,
        num_attention_heads=architecture.num_attention_heads,
        num_key_value_heads=architecture.num_key_value_heads,
        max_position_embeddings=architecture.max_position_embeddings,
        rope_parameters={"rope_type": "default", "rope_theta": architecture.rope_theta},
        rms_norm_eps=architecture.rms_norm_eps,
        initializer_range=architecture.initializer_range,
        tie_word_embeddings=architecture.tie_word_embeddings,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    backbone = LlamaForCausalLM(config)
    if architecture.residual_scale:
        shrink = 1.0 / math.sqrt(2 * architecture.num_hidden_layers)
        with torch.no_grad():
            for name, weight in backbone.named_parameters():
                if name.endswith(("o_proj.weight", "down_proj.weight")):
                    weight.mul_(shrink)
    settings = LandmarkConfig(
        block_size=rows.block_size, landmark_token_id=landmark, landmark_in_loss=rows.targets == "all",
        **rows.windows(rows.block_size),
    )  # fmt: skip
    return LandmarkModel(backbone, tokenizer, settings)


def rows_of(files: Sequence[Path], model: LandmarkModel, rows: RowSettings, *, seed: int) -> Batches:
    """Micro-batches from text files, or from one token file."""
    eos = model.tokenizer.eos_token_id
    grid = rows.grid(model.config.landmark_token_id, eos, block_size=model.config.block_size)
    if token_file := single_token_file(files):
        return TokenRows(open_token_file(token_file), grid, rows=rows.rows, seed=seed)
    return StreamedRows(files, lambda text: model.tokenize(text).ids, grid, rows=rows.rows, eos_token_id=eos)


def heldout_loss(batches: Batches, rows: int) -> Evaluation:
    """Mean loss over the first `rows` held-out rows, always the same ones."""
    drawn: list[Rows] = []
    count = 0
    for batch in batches:
        drawn.append(batch)
        count += len(batch.ids_BT)
        if count >= rows:
            break

    def evaluate(model: LandmarkModel, step: int) -> dict[str, float]:
        total, trained = 0.0, 0
        for batch in drawn:
            loss, _, tokens = next_token_loss(model, batch)
            total, trained = total + float(loss) * tokens, trained + tokens
        return {"loss": total / trained, "perplexity": math.exp(min(50.0, total / trained))}

    return evaluate


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer whose tokens are the 256 bytes and an end-of-text: for tests and toy runs."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={byte: number for number, byte in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=END_OF_TEXT)  # type: ignore[no-untyped-call]


def open_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """ "bytes", or a folder or hub id of a Hugging Face tokenizer."""
    return byte_tokenizer() if name == "bytes" else AutoTokenizer.from_pretrained(name, trust_remote_code=False)


def plain_tokens(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Tokens of a text in which names of special tokens are plain text too."""
    fast = tokenizer.backend_tokenizer
    fast.encode_special_tokens = True
    try:
        return list(fast.encode(text, add_special_tokens=False).ids)
    finally:
        fast.encode_special_tokens = False
