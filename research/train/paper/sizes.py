"""How large an experiment is: the network, its rows, what is evaluated. All arms of a table share one size."""

from dataclasses import dataclass, field

from research.train.paper.arms import Arm
from research.train.recipes.presets import Architecture


@dataclass(frozen=True, kw_only=True)
class Size:
    name: str
    architecture: Architecture
    window: int
    """Raw tokens that the attention of a trained row spans."""
    per_block: int
    """Raw tokens of a block."""
    rows: int
    """Rows of `window` raw tokens in a step."""
    steps: int
    rates: tuple[float, ...]
    """Peak learning rates; each arm takes the one with the least held-out loss of its first seed, and a variant of the
    landmark arm takes that arm's."""
    lengths: tuple[int, ...]
    """Raw tokens of an evaluated segment: the window, and longer ones."""
    segments: int
    """Segments of the longest length; shorter lengths read as many tokens."""
    documents: int
    """Training documents."""
    top_ks: tuple[int, ...]
    tuning_steps: int | None = None
    """Steps of the runs that rates are compared by (default: as many as the others)."""
    prompts: int = 20
    """Passkey prompts of each length."""
    block_sizes: tuple[int, ...] = field(default=())
    """Raw tokens of a block, in the table of block sizes."""
    preset: str | None = None
    """The preset whose optimizer and schedule train all arms."""

    @property
    def tuned_length(self) -> int:
        """Raw tokens of the segments that rates are compared by: longer than a window, so that what is compared is what
        the tables show."""
        return self.lengths[min(1, len(self.lengths) - 1)]

    @property
    def step_tokens(self) -> int:
        """Of a micro-batch; the preset may accumulate several in a step."""
        return self.window * self.rows

    def arm(self, name: str) -> Arm:
        """One of `ARMS`, or landmark-X: tuned (a fine-tuned `causal`), or a number, for blocks of so many raw tokens.

        Raises ValueError for another name.
        """
        half, long = self.window // 2, 4 * self.window
        if name == "causal":
            return Arm(name=name, kind="causal", row_tokens=self.window, window=self.window)
        if name == "long":
            return Arm(name=name, kind="causal", row_tokens=long, window=long)
        if name == "recurrence":
            return Arm(name=name, kind="recurrence", row_tokens=long, window=half, cache=half)
        kind, _, variant = name.partition("-")
        if kind != "landmark" or (variant not in ("", "tuned") and not variant.isdigit()):
            raise ValueError(f"No arm {name!r}: there are {', '.join(ARMS)}, landmark-N and landmark-tuned.")
        per_block = int(variant) if variant.isdigit() else self.per_block
        return Arm(
            name=name, kind="landmark", row_tokens=self.window, window=self.window, block_size=per_block + 1,
            start="causal" if variant == "tuned" else None, rated_as=None if variant in ("", "tuned") else kind,
        )  # fmt: skip


ARMS = ("causal", "long", "recurrence", "landmark")
SIZES = {
    size.name: size
    for size in (
        Size(
            name="tiny",
            architecture=Architecture(
                hidden_size=96, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4,
                num_key_value_heads=4, max_position_embeddings=1 << 16, tie_word_embeddings=True,
            ),
            window=128, per_block=15, rows=8, steps=60, rates=(3e-3,), lengths=(128, 512, 2048), segments=2,
            documents=12, top_ks=(2, 4), block_sizes=(7, 15, 31),
        ),
        Size(
            name="minutes",
            architecture=Architecture(
                hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4,
                num_key_value_heads=4, max_position_embeddings=1 << 16, tie_word_embeddings=True, initializer_range=0.1,
            ),
            window=64, per_block=7, rows=8, steps=2000, rates=(1e-3, 2e-3, 4e-3), lengths=(64, 256, 1024),
            segments=12, documents=160, top_ks=(2, 4), block_sizes=(3, 7, 15),
        ),
        Size(
            name="small",
            architecture=Architecture(
                hidden_size=256, intermediate_size=688, num_hidden_layers=6, num_attention_heads=8,
                num_key_value_heads=8, max_position_embeddings=1 << 16, tie_word_embeddings=True,
            ),
            window=512, per_block=50, rows=8, steps=4000, rates=(1e-3, 2e-3), lengths=(500, 2000, 8000), segments=8,
            documents=400, top_ks=(2, 4), block_sizes=(7, 15, 25, 50, 100),
        ),
        Size(
            name="paper",
            architecture=Architecture(
                hidden_size=1024, intermediate_size=2752, num_hidden_layers=12, num_attention_heads=8,
                num_key_value_heads=8, max_position_embeddings=1 << 16, tie_word_embeddings=True,
                pad_vocab_to=50304, residual_scale=True,
            ),
            preset="paper-12-layer-lm", window=512, per_block=50, rows=16, steps=240_000, rates=(2e-3,),
            lengths=(512, 2048, 4096, 8192), segments=64, documents=1 << 30, top_ks=(2, 3, 4),
            block_sizes=(25, 50, 100),
        ),
    )
}  # fmt: skip
