"""A landmark model as a checkpoint with rounded matrices. (Plain checkpoints: `LandmarkModel.save`.)"""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from model.checkpoint.int8 import KIND, WEIGHTS_FILE, to_int8
from model.checkpoint.landmark_model import LandmarkModel


def save_int8(model: LandmarkModel, folder: str | Path) -> None:
    """Write the model with int8 matrices, its config and its tokenizer; `load_backbone` reads it.

    Raises ModelError if a weight is not finite. (In fewer bits: `model.training.recipes.fewer_bits`.)
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(to_int8(model.backbone.state_dict()), folder / WEIGHTS_FILE, metadata={"format": "pt"})
    config: dict[str, Any] = json.loads(model.backbone.config.to_json_string())
    config |= {
        "architectures": [type(model.backbone).__name__],
        "dtype": str(model.dtype).removeprefix("torch."),
        "landmark": model.config.to_dict(),
        "weights": KIND,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    model.save_parts(folder)
