"""The kernels compiled for GPUs that are not here: nothing of a tile may spill, and its shared memory must fit.

Triton compiles without a device. `make kernels` fetches it and runs these tests and the interpreted ones.
"""

from __future__ import annotations

import os
import re
import subprocess
from tempfile import NamedTemporaryFile
from typing import Any

import pytest

from model.attention import fused
from model.attention.fused import KEY_VALUE, KEY_VALUE_ROWS, READING, chosen_sizes, tile_sizes, triton_is_there

pytestmark = [
    pytest.mark.skipif(not triton_is_there(), reason="Triton is not installed: make kernels"),
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="kernels are interpreted"),
]
SHARED_BYTES = {80: 163 * 1024, 89: 99 * 1024, 90: 227 * 1024}
"""That a thread block may take at most, by compute capability (CUDA C++ programming guide, table of capabilities)."""
NUMBERS = {"bf16", "fp16"}
IN_KIND = {"Q", "K", "V", "OUT", "DOUT", "DQ", "DK", "DV", "ROWS", "KEYS", "VALUES"}
COMPILED: dict[str, Any] = {
    "forward_kernel": READING,
    "query_gradient_kernel": READING,
    "key_value_gradient_kernel": KEY_VALUE,
    "chosen_blocks_kernel": {},
}
EVERY = [
    (arch, kind, block_size, dim)
    for arch in sorted(SHARED_BYTES)
    for kind in sorted(NUMBERS)
    for block_size in (51, 64)
    for dim in (64, 128)
]
USUAL = {(80, "bf16", 64, 128), (89, "bf16", 51, 128), (90, "bf16", 64, 128)}


@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.parametrize(
    ("arch", "kind", "block_size", "dim"),
    [pytest.param(*one, marks=() if one in USUAL else pytest.mark.slow) for one in EVERY],
)
def test_a_tile_fits_into_registers_and_shared_memory(
    name: str, arch: int, kind: str, block_size: int, dim: int
) -> None:
    if name == "chosen_blocks_kernel":
        sizes = chosen_sizes(block_size, dim, 32)
    else:
        sizes = tile_sizes(block_size, dim, shared=4) | {"HAS_VALID": True}
        sizes |= {"M": KEY_VALUE_ROWS} if name == "key_value_gradient_kernel" else {}
    shared, stack = _resources(name, arch, kind, sizes, COMPILED[name])
    assert stack == 0, f"{stack} bytes of each thread are spilled"
    assert shared <= SHARED_BYTES[arch]


def _resources(name: str, arch: int, kind: str, sizes: dict[str, int], options: dict[str, int]) -> tuple[int, int]:
    """Bytes of shared memory a thread block, and of spilled registers a thread."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = getattr(fused._kernels(), name)
    types = {arg: "constexpr" if arg in sizes else _type(arg, kind) for arg in kernel.arg_names}
    aligned = {
        (place,): [["tt.divisibility", 16]] for place, (arg, type_) in enumerate(types.items()) if type_.startswith("*")
    }
    constants = {(kernel.arg_names.index(arg),): size for arg, size in sizes.items()}
    source = ASTSource(fn=kernel, signature=types, constexprs=constants, attrs=aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    with NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        command = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
        told = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    (stack,) = re.findall(r"STACK:(\d+)", told)
    return compiled.metadata.shared, int(stack)


def _type(arg: str, kind: str) -> str:
    if arg in IN_KIND:
        return f"*{kind}"
    if arg in {"LOG_Z", "DOT", "OUTS", "GATES"}:
        return "*fp32"
    if arg == "VALID":
        return "*u8"
    if arg == "LENGTHS":
        return "*i32"
    return "fp32" if arg.startswith("scale") else "i32"
