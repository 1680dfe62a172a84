"""The preloaded library of `failing_disk.c`: compiled once, and this process begun again with it."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SHORT = -1
KINDS = {"disk full": errno.ENOSPC, "input/output error": errno.EIO, "short write": SHORT}
_MARK = "CAIRN_CAMPAIGN_SHIM"  # names the library in the process that has it


def compiler() -> str | None:
    return shutil.which("cc") if sys.platform == "linux" else None


def begin_again_with_shim() -> ctypes.CDLL:
    """The library, armed for nothing. Does not return the first time: the program is run anew with it preloaded."""
    path = os.environ.pop(_MARK, "")
    if not path:
        compile_with = compiler()
        if compile_with is None:
            sys.exit("This needs Linux and a C compiler (cc).")
        path = str(Path(tempfile.mkdtemp(prefix="cairn-shim-")) / "failing_disk.so")
        source = Path(__file__).with_name("failing_disk.c")
        subprocess.run([compile_with, "-O1", "-shared", "-fPIC", "-o", path, source, "-ldl"], check=True)
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {"LD_PRELOAD": path, _MARK: path})
    os.environ.pop("LD_PRELOAD", None)
    shim = ctypes.CDLL(path)
    shim.failing_disk_arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int]
    shim.failing_disk_clock.argtypes = [ctypes.c_long]
    shim.failing_disk_seen.restype = ctypes.c_long
    shim.failing_memory_arm.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_int]
    shim.failing_memory_seen.restype = ctypes.c_long
    shutil.rmtree(Path(path).parent, ignore_errors=True)  # it is loaded
    return shim
