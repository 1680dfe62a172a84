"""Too little memory is a sentence, in a terminal and over HTTP; other errors of a program keep their traceback."""

from __future__ import annotations

import logging

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.api import errors
from app.cli.output import user_message

TORCH = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to ..."
TOO_LITTLE = {
    "python": MemoryError(),
    "torch": RuntimeError(TORCH),
    "gpu": RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"),
    "interpreter": SystemError("error return without exception set"),
    "numpy": SystemError("<ufunc 'add'> returned NULL without setting an exception"),
}


@pytest.mark.parametrize("error", TOO_LITTLE.values(), ids=TOO_LITTLE)
def test_too_little_memory_is_a_sentence(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    assert "not enough memory" in (user_message(error) or "")
    app = FastAPI()
    errors.install(app)

    @app.get("/")
    def fails() -> None:
        raise error

    with caplog.at_level(logging.ERROR, logger="cairn.api"):
        answer = TestClient(app).get("/")
    assert answer.status_code == 503 and answer.json()["error"]["code"] == "not_enough_memory"
    assert TORCH not in answer.text and all(record.exc_info is None for record in caplog.records)


def test_other_errors_of_a_program_are_not_explained_away() -> None:
    assert user_message(SystemError("bad argument to internal function")) is None
    error = RuntimeError("dictionary changed size during iteration")
    assert user_message(error) is None and errors.describe(error)[0] == 500
    app = FastAPI()
    errors.install(app)

    @app.get("/")
    def fails() -> None:
        raise error

    with pytest.raises(RuntimeError, match="dictionary"):
        TestClient(app).get("/")
