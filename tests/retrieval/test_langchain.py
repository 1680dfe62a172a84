"""LangChain's own tests of a retriever, and what ours promises beyond them."""

from __future__ import annotations

import copy
import json
import pickle
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from langchain_core.tools import create_retriever_tool
from langchain_tests.integration_tests import RetrieversIntegrationTests
from pydantic import ValidationError

from retrieval.errors import CairnError, InvalidRequest
from retrieval.langchain import LandmarkRetriever, RemoteLandmarkRetriever
from retrieval.library import Library
from tests.retrieval.conftest import FOX, WHALE, add
from tests.tiny_model import tiny_model


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("langchain")
    with Library.open(folder / "home", tiny_model(block_size=16)) as library:
        for name, text in (("fox.txt", FOX), ("whale.md", WHALE)):
            (folder / name).write_text(text)
            add(library, folder / name)
        yield library


class TestLandmarkRetriever(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def _library(self, filled):
        type(self)._filled = filled

    @property
    def retriever_constructor(self):
        return LandmarkRetriever

    @property
    def retriever_constructor_params(self):
        return {"library": self._filled}

    @property
    def retriever_query_example(self):
        return "What do whales do?"


def test_metadata_says_where_a_passage_stands_and_is_json(filled):
    document = LandmarkRetriever(library=filled, k=1).invoke("fox")[0]
    json.dumps(document.metadata)
    stored = filled.documents.get(document.metadata["document_id"])
    assert document.metadata["source"] == stored.source
    assert {"page", "page_label", "start_index", "score", "document_id", "block_ids", "bboxes"} <= set(
        document.metadata
    )
    assert 0 <= document.metadata["score"] <= 1
    text = (FOX if stored.source == "fox.txt" else WHALE).strip()
    start = document.metadata["start_index"]
    assert text[start : start + len(document.page_content)] == document.page_content


async def test_the_async_call_honours_k_and_gives_the_same_documents(filled):
    retriever = LandmarkRetriever(library=filled)
    assert await retriever.ainvoke("whales", k=2) == retriever.invoke("whales", k=2)
    assert len(await retriever.ainvoke("whales", k=2)) == 2


def test_a_filter_keeps_other_documents_out(filled):
    fox = next(document.id for document in filled.documents.list() if document.source == "fox.txt")
    for retriever, arguments in (
        (LandmarkRetriever(library=filled, k=5, filter={"document_id": fox}), {}),
        (LandmarkRetriever(library=filled, k=5), {"filter": {"document_id": [fox]}}),
    ):
        found = retriever.invoke("whales in the ocean", **arguments)
        assert len(found) == 5 and {document.metadata["document_id"] for document in found} == {fox}


def test_a_filter_that_means_nothing_is_refused(filled):
    for wrong in ({"author": "me"}, {"document_id": []}):
        with pytest.raises(InvalidRequest):
            LandmarkRetriever(library=filled).invoke("fox", filter=wrong)


@pytest.mark.parametrize("query", [None, 3, {"question": "fox"}, ["fox"]])
def test_a_query_that_is_no_text_is_refused(filled, query):
    with pytest.raises(InvalidRequest, match="A query is a text"):
        LandmarkRetriever(library=filled).invoke(query)


def test_wrong_values_are_refused_with_what_may_be_meant(filled):
    with pytest.raises(InvalidRequest, match="k is a number"):
        LandmarkRetriever(library=filled).invoke("fox", k="3")
    with pytest.raises(InvalidRequest, match="A filter is a mapping"):
        LandmarkRetriever(library=filled).invoke("fox", filter="collection_id")
    for wrong in ({"top_k": 3}, {"search_kwargs": {"k": 3}}):
        with pytest.raises(ValidationError, match="is no field of LandmarkRetriever"):
            LandmarkRetriever(library=filled, **wrong)
    with pytest.raises(ValidationError, match="Did you mean 'score_threshold'"):
        LandmarkRetriever(library=filled, score_treshold=0.5)


def test_copies_share_the_library_and_pickling_says_what_to_use(filled):
    retriever = LandmarkRetriever(library=filled, k=2)
    assert copy.deepcopy(retriever).invoke("fox") == retriever.invoke("fox")
    with pytest.raises(TypeError, match="RemoteLandmarkRetriever"):
        pickle.dumps(retriever)
    remote = RemoteLandmarkRetriever(url="http://127.0.0.1:1", token="secret", k=2)
    assert pickle.loads(pickle.dumps(remote)) == remote


def test_a_threshold_leaves_weak_passages_out(filled):
    retriever = LandmarkRetriever(library=filled, k=6)
    scores = [document.metadata["score"] for document in retriever.invoke("fox")]
    kept = retriever.invoke("fox", score_threshold=scores[2])
    assert [document.metadata["score"] for document in kept] == [score for score in scores if score >= scores[2]]


def test_it_serves_as_a_tool_for_an_agent(filled):
    tool = create_retriever_tool(
        LandmarkRetriever(library=filled, k=2), "documents", "Searches.", response_format="content_and_artifact"
    )
    message = tool.invoke({"type": "tool_call", "id": "1", "name": "documents", "args": {"query": "fox"}})
    assert len(message.artifact) == 2
    assert all(document.page_content in message.content for document in message.artifact)


@pytest.fixture
def server(filled):
    """A stand-in for `cairn serve`: the one route, with a token."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            allowed = self.headers["Authorization"] == "Bearer secret" and self.path == "/api/v1/search"
            passages = [passage.to_dict() for passage in filled.search(body["query"], body["k"])] if allowed else []
            reply = json.dumps({"passages": passages} if allowed else {"error": "Sign in."}).encode()
            self.send_response(200 if allowed else 401)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_):
            pass

    http = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}"
    http.shutdown()
    thread.join()


def test_a_served_library_gives_what_the_local_one_gives(filled, server):
    remote = RemoteLandmarkRetriever(url=server + "/", token="secret", k=3)
    assert remote.invoke("fox") == LandmarkRetriever(library=filled, k=3).invoke("fox")
    assert "secret" not in repr(remote) and "secret" not in remote.model_dump_json()


def test_a_token_that_was_read_from_a_file_may_end_with_its_line(server):
    assert RemoteLandmarkRetriever(url=server, token="secret\n", k=1).invoke("fox")


def test_a_served_library_that_refuses_or_is_gone_says_so(server):
    with pytest.raises(CairnError, match="401.*Sign in"):
        RemoteLandmarkRetriever(url=server, token="wrong").invoke("fox")
    with pytest.raises(CairnError, match="cairn serve"):
        RemoteLandmarkRetriever(url="http://127.0.0.1:1", timeout_seconds=2).invoke("fox")
    with pytest.raises(ValidationError, match="http"):
        RemoteLandmarkRetriever(url="file:///etc/passwd")
