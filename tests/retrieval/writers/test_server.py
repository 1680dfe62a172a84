"""A writer behind a server, over a real socket: what it sends, and what it says when the server does not write."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from retrieval.errors import WriterError
from retrieval.types.writer import WriterPassage, WriterRequest, Written
from retrieval.writers import server as server_module
from retrieval.writers.opening import open_writer
from retrieval.writers.server import ServerWriter
from tests.chat_server import ChatServer, chat_server
from tests.tiny_model import SHAPE, byte_tokenizer
from tests.waiting import until

PASSAGE = WriterPassage(1, "d", "Handbook", (3,), "The dam was raised in 1981.")
REQUEST = WriterRequest("Answer.", "When was the dam raised?", (PASSAGE,), max_tokens=20)


@pytest.fixture(scope="module")
def running() -> Iterator[ChatServer]:
    with chat_server() as server:
        yield server


@pytest.fixture
def server(running: ChatServer) -> ChatServer:
    return running.begin_anew()


def write(writer: ServerWriter, request: WriterRequest = REQUEST, cancelled=lambda: False) -> tuple[str, Written]:
    text, stream = "", writer.write(request, cancelled)
    while True:
        try:
            text += next(stream).text
        except StopIteration as end:
            return text, end.value


def test_the_answer_streams_and_the_server_gets_the_passages_and_the_options(server: ChatServer) -> None:
    writer = ServerWriter(server.address, key="sk-secret")
    text, written = write(writer)
    assert text == "The dam was raised in 1981 [1]." and written == Written("stop")
    (sent,) = server.requests
    assert sent["model"] == "tiny" and sent["stream"] and sent["max_tokens"] == 20 and sent["temperature"] == 0
    assert "tools" not in sent
    assert sent["messages"][1]["content"].startswith("[1] Handbook, page 3\nThe dam was raised in 1981.")
    assert server.keys == ["Bearer sk-secret"]
    assert (writer.name, writer.kind, writer.leaves_machine) == ("tiny", "server", False)


def test_an_answer_that_was_cut_off_says_so(server: ChatServer) -> None:
    short = WriterRequest("Answer.", "When?", max_tokens=2)
    assert write(ServerWriter(server.address), short) == ("The dam", Written("length"))


def test_a_refusal_that_passes_is_tried_again(server: ChatServer) -> None:
    server.behaviour = "429 once"
    assert write(ServerWriter(server.address))[0].startswith("The dam") and len(server.requests) == 2


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ("429", "takes no more requests"),
        ("500", r"failed \(500\). It said: it burns"),
        ("401", "refused the key"),
        ("400", "It said: context too long for …"),
        ("404", "does not know this address or model"),
        ("html", "broke off|not an answer"),
        ("elsewhere", r"refused the request \(307\)"),
        ("breaks off", "broke off in the middle"),
        ("ends without a reason", "broke off in the middle"),
        ("rubbish in the middle", "not an answer"),
        ("no choices", "not an answer"),
        ("content is a number", "not an answer"),
        ("error in the middle", "It said: out of memory"),
        ("says nothing", "it wrote nothing"),
        ("stalls", "sent nothing for 1 seconds"),
        ("stalls in the middle", "sent nothing for 1 seconds"),
    ],
)
def test_a_server_that_fails_is_explained(server: ChatServer, behaviour: str, said: str, caplog) -> None:
    server.behaviour = behaviour
    patience = 1.0 if "stalls" in behaviour else 30.0
    writer = ServerWriter(server.address, key="sk-secret", timeout_seconds=patience)
    begun = time.monotonic()
    with caplog.at_level(logging.DEBUG), pytest.raises(WriterError, match=said) as raised:
        write(writer)
    assert time.monotonic() - begun < 25
    assert "sk-secret" not in str(raised.value) and "sk-secret" not in caplog.text


def test_a_server_that_never_ends_is_stopped_at_the_length_of_the_answer(server: ChatServer) -> None:
    server.behaviour = "never ends"
    text, written = write(ServerWriter(server.address))
    assert written.finish == "length" and len(text.split()) < 100


def test_a_stalling_server_can_be_stopped_at_once(server: ChatServer) -> None:
    server.behaviour, received = "stalls in the middle", list[str]()
    stream = ServerWriter(server.address).write(REQUEST, lambda: bool(received))
    received.append(next(stream).text)
    begun = time.monotonic()
    with pytest.raises(StopIteration) as ended:
        next(stream)
    assert received == ["The dam"] and ended.value.value.finish == "cancelled"
    assert time.monotonic() - begun < 30, "the server rests for a minute"


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(WriterError, match="http://127.0.0.1:9/v1 cannot be reached"):
        write(ServerWriter("http://127.0.0.1:9/v1#m"))


def test_of_several_models_one_has_to_be_named(server: ChatServer) -> None:
    server.models = ["a", "b"]
    with pytest.raises(WriterError, match=r"2 models \(a, b\). Name one: .*/v1#a"):
        write(ServerWriter(server.address))
    server.models = []
    with pytest.raises(WriterError, match=r"0 models .*/v1#model"):
        write(ServerWriter(server.address))
    writer = ServerWriter(f"{server.address}#b")
    write(writer)
    assert server.requests[-1]["model"] == "b" == writer.name


def test_the_only_model_of_a_server_is_named_before_it_has_written(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = ServerWriter(server.address, key="sk-secret")
    assert writer.name == "tiny" and server.requests == []
    server.models = ["a", "b"]
    assert ServerWriter(server.address).name == "the model at 127.0.0.1"
    monkeypatch.setattr(server_module, "_AGAIN_SECONDS", 0.0)
    later = ServerWriter(f"{server.address}/nowhere")
    assert later.name == later.name == "the model at 127.0.0.1"
    assert ServerWriter("http://127.0.0.1:9/v1").name == "the model at 127.0.0.1"


@pytest.mark.parametrize(
    ("model", "shown"),
    [("models/SmolLM2-135M.Q4_1.gguf", "SmolLM2-135M.Q4_1.gguf"), (r"C:\models\small.GGUF", "small.GGUF"),
     ("/models/llama-3b", "llama-3b"), ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B"), ("qwen3:0.6b", "qwen3:0.6b")],
)  # fmt: skip
def test_a_model_that_is_called_by_its_path_is_shown_by_its_file(server: ChatServer, model: str, shown: str) -> None:
    server.models = [model]
    writer = ServerWriter(server.address)
    assert writer.name == shown and ServerWriter(f"{server.address}#{model}").name == shown
    write(writer)
    assert server.requests[-1]["model"] == model and writer.name == shown


def test_what_a_reasoning_model_thinks_is_not_shown(server: ChatServer) -> None:
    server.reply = lambda _system, _user: "<think> Hm, 1980? No. </think> In 1981 [1]."
    assert write(ServerWriter(server.address))[0] == "In 1981 [1]."
    server.reply = lambda _system, _user: "<thin ice> is no thinking"
    assert write(ServerWriter(server.address))[0] == "<thin ice> is no thinking"


@pytest.mark.parametrize(
    ("address", "leaves"),
    [("http://localhost:1/v1", False), ("http://127.0.0.2/v1", False), ("http://[::1]:1/v1", False),
     ("https://api.example.org/v1", True), ("http://192.168.0.9:11434/v1", True), ("http://127.evil.org/v1", True)],
)  # fmt: skip
def test_a_writer_knows_whether_passages_leave_this_machine(address: str, leaves: bool) -> None:
    assert ServerWriter(address).leaves_machine is leaves


def test_a_writer_is_opened_by_its_address_and_its_key_is_not_shown(tmp_path: Path) -> None:
    writer = open_writer("http://localhost:1/v1#m", home=tmp_path, key="sk-secret")
    assert writer.name == "m" and "sk-secret" not in repr(writer)
    with pytest.raises(WriterError, match="this is not an address"):
        open_writer("http://#m", home=tmp_path)


def test_transformers_serve_is_a_server_that_writes(tmp_path: Path) -> None:
    save_tiny_chat_model(tmp_path / "model")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = Path(sys.executable).with_name("transformers")
    command = [program, "serve", "--port", str(port), "--device", "cpu"]
    with subprocess.Popen(command, env={**os.environ, "HF_HUB_OFFLINE": "1"}, stderr=subprocess.DEVNULL) as serving:
        try:
            until(lambda: answers(f"http://localhost:{port}/health"))
            writer = ServerWriter(f"http://localhost:{port}/v1#{tmp_path / 'model'}", timeout_seconds=60)
            text, written = write(writer)
        finally:
            serving.terminate()
    assert text and written.finish in ("stop", "length")


def answers(url: str) -> bool:
    try:
        return httpx2.get(url).is_success
    except httpx2.HTTPError:
        return False


def save_tiny_chat_model(folder: Path) -> None:
    """Random weights; only its form is that of a chat model."""
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = (
        "{% for message in messages %}<bos>{{ message['role'] }}:{{ message['content'] }}<end>{% endfor %}<bos>"
    )
    torch.manual_seed(0)
    config = LlamaConfig(**SHAPE, bos_token_id=257, eos_token_id=258)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
