"""Several questions at the model at once: how many, beside ingestion, and with the same answers as one by one."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from model.threads import ThreadCount
from retrieval.engine.scheduler import ModelScheduler
from retrieval.library import Library
from retrieval.types.answers import Answer
from tests.app.small_library import fill
from tests.tiny_model import shipped_model


def test_as_many_questions_are_at_work_as_there_are_places_and_never_beside_ingestion() -> None:
    lock, inside, most, shared, beside = threading.Lock(), 0, 0, set(), []
    scheduler = ModelScheduler(before_work=shared.add, slots=lambda: 2)
    ingesting, pairs = threading.Event(), threading.Barrier(2)

    def question() -> None:
        nonlocal inside, most
        with scheduler.for_question():
            with lock:
                inside += 1
                most = max(most, inside)
                beside.append(ingesting.is_set())
            pairs.wait(20)  # passes only with another question at work
            with lock:
                inside -= 1

    def ingestion() -> None:
        with scheduler.for_ingestion():
            ingesting.set()
            with lock:
                beside.append(inside > 0)
            ingesting.clear()

    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(work) for _ in range(6) for work in (question, question, ingestion)]:
            done.result(20)
    assert most == 2 and not any(beside) and shared == {1, 2}


def test_places_that_go_away_are_not_taken() -> None:
    slots = 2
    scheduler, second = ModelScheduler(slots=lambda: slots), threading.Event()

    def ask() -> None:
        with scheduler.for_question():
            second.set()

    with scheduler.for_question():
        slots = 1
        thread = threading.Thread(target=ask)
        thread.start()
        assert not second.wait(0.05)
    assert second.wait(5)
    thread.join()


def test_threads_are_shared_among_questions() -> None:
    threads = ThreadCount(4)
    assert [threads.apply(sharing) for sharing in (1, 2, 3, 9)] == [4, 2, 1, 1] and threads.now == 4
    threads.apply(1)


@pytest.fixture(scope="module")
def read_by_the_shipped_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("read"))


@pytest.mark.parametrize("voters", ["group", "token"])
def test_answers_given_together_are_those_given_one_by_one(voters: str, read_by_the_shipped_model: Path) -> None:
    questions = ["Who keeps the key?", "When is the gate shut?", "How high is the dam?", "What is stored in block 7?"]

    def answered(library: Library, question: str) -> Answer:
        answer = list(library.ask(question, voters=voters, anyway=True))[-1]
        assert isinstance(answer, Answer)
        return answer

    with Library.open(read_by_the_shipped_model, shipped_model, threads=2) as library, ThreadPoolExecutor(4) as threads:
        alone = [answered(library, question) for question in questions]
        together = list(threads.map(lambda question: answered(library, question), questions * 2))
    for one, other in zip(alone * 2, together, strict=True):
        assert one.text and other.text == one.text and other.outcome == one.outcome
        assert [passage.text for passage in other.passages] == [passage.text for passage in one.passages]
        assert other.confidence == pytest.approx(one.confidence, abs=1e-4)
        assert [token.logprob for token in other.tokens] == pytest.approx(
            [token.logprob for token in one.tokens], abs=1e-3
        )
