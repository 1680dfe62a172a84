"""Several threads may be the first to need the model; to open or serve a library needs none of it."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

SCRIPT = """
import importlib, sys, threading
sys.setswitchinterval(1e-5)
modules = ["model.checkpoint.load", "model.inference.prompt", "retrieval.ingest.pipeline", "retrieval.query.answer"]
together, failed = threading.Barrier(len(modules)), []

def load(name):
    together.wait()
    try:
        importlib.import_module(name)
    except ImportError as error:
        failed.append(f"{name}: {error}")

threads = [threading.Thread(target=load, args=(name,)) for name in modules]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(*failed, sep="; ", end="")
"""


def test_threads_may_import_the_model_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == ""


def test_a_server_over_a_library_loads_neither_the_compiler_nor_the_backbones_nor_the_client_of_writers() -> None:
    """Each costs a second; a command that lists documents needs none, and a server not before it answers."""
    names = ("torch._dynamo", "transformers", "gradio", "openai")
    script = f"import sys, retrieval.library, app.api; print(*[name for name in {names} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
