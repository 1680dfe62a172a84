"""Questions before ingestion, one at a time."""

import threading
import time

import pytest

from retrieval.engine.scheduler import LARGEST_BATCH, Batcher, ModelScheduler
from tests.waiting import until


def run(*targets):
    threads = [threading.Thread(target=target, daemon=True) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_nobody_shares_the_model():
    scheduler, inside, worst = ModelScheduler(), [0], [0]

    def work(turn):
        def body():
            for _ in range(50):
                with turn():
                    inside[0] += 1
                    worst[0] = max(worst[0], inside[0])
                    time.sleep(0.0001)
                    inside[0] -= 1

        return body

    run(work(scheduler.for_question), work(scheduler.for_question), work(scheduler.for_ingestion))
    assert worst[0] == 1


def test_a_waiting_question_goes_before_ingestion_that_waits_longer():
    scheduler, order = ModelScheduler(), []

    def ingest():
        with scheduler.for_ingestion():
            order.append("ingestion")

    def ask():
        with scheduler.for_question():
            order.append("question")

    with scheduler.for_ingestion():
        threads = [threading.Thread(target=ingest)]
        threads[0].start()
        until(lambda: scheduler._ingestion)
        threads.append(threading.Thread(target=ask))
        threads[1].start()
        until(lambda: scheduler._questions)
    for thread in threads:
        thread.join(10)
    assert order == ["question", "ingestion"]


def test_ingestion_stays_away_between_the_steps_of_an_open_question():
    scheduler, order = ModelScheduler(), []

    def ingest():
        with scheduler.for_ingestion():
            order.append("ingestion")

    with scheduler.question_open():
        with scheduler.for_question():
            order.append("token 1")
        thread = threading.Thread(target=ingest)
        thread.start()
        time.sleep(0.05)
        with scheduler.for_question():
            order.append("token 2")
    thread.join(10)
    assert order == ["token 1", "token 2", "ingestion"]


def test_a_reader_that_stopped_reading_does_not_hold_ingestion_up_for_ever():
    scheduler = ModelScheduler(patience_seconds=0.05)
    with scheduler.question_open():
        began = time.monotonic()
        with scheduler.for_ingestion():
            pass
    assert 0.04 < time.monotonic() - began < 5


def test_a_failing_step_gives_the_model_back():
    scheduler = ModelScheduler()
    try:
        with scheduler.for_question():
            raise RuntimeError("step failed")
    except RuntimeError:
        pass
    with scheduler.for_ingestion():
        pass


def test_work_without_the_model_gives_way_to_questions_too():
    scheduler, order = ModelScheduler(), []

    def ingest():
        scheduler.wait_for_queries()
        order.append("ingestion")

    scheduler.wait_for_queries()
    with scheduler.question_open():
        thread = threading.Thread(target=ingest)
        thread.start()
        time.sleep(0.05)
        order.append("question")
    thread.join(10)
    assert order == ["question", "ingestion"]
    patient = ModelScheduler(patience_seconds=0.05)
    with patient.question_open():
        patient.wait_for_queries()


def test_a_question_goes_first_within_a_window_that_yields():
    scheduler, order, begun = ModelScheduler(), [], threading.Event()

    def ingest():
        with scheduler.for_ingestion():
            scheduler.yield_to_queries()  # nobody waits: it goes on
            order.append("first layer")
            begun.set()
            deadline = time.monotonic() + 10
            while "question" not in order and time.monotonic() < deadline:
                scheduler.yield_to_queries()
            order.append("second layer")

    def ask():
        assert begun.wait(10)
        with scheduler.question_open(), scheduler.for_question():
            time.sleep(0.02)
            order.append("question")

    run(ingest, ask)
    assert order == ["first layer", "question", "second layer"]
    with scheduler.for_ingestion():
        pass


def test_ingestion_gets_a_share_where_questions_never_cease():
    scheduler, done, ended = ModelScheduler(longest_away_seconds=0.1), [], threading.Event()

    def ask():
        while not ended.is_set():
            with scheduler.question_open(), scheduler.for_question():
                time.sleep(0.001)

    def ingest():
        for _ in range(3):
            with scheduler.for_ingestion():
                for _ in range(3):
                    scheduler.yield_to_queries()
            scheduler.wait_for_queries()
            done.append("window")
        ended.set()

    run(*[ask] * 4, ingest)
    assert done == ["window"] * 3


def test_ingestion_that_had_its_share_gives_way_again(monkeypatch):
    monkeypatch.setattr("retrieval.engine.scheduler.DUE_SECONDS", 0.0)
    scheduler, order = ModelScheduler(patience_seconds=60, longest_away_seconds=0.05), []
    with scheduler.question_open():
        began = time.monotonic()
        scheduler._condition.acquire()
        scheduler._away_since = began - 1  # kept away for a second
        scheduler._condition.release()
        with scheduler.for_ingestion():
            order.append("first window")
        assert time.monotonic() - began < 30 and scheduler._must_wait()
    with scheduler.for_ingestion():
        order.append("second window")
    assert order == ["first window", "second window"]


def test_questions_that_wait_for_the_same_step_take_it_together_and_each_gets_its_own_result():
    scheduler, taken, results = ModelScheduler(), [], {}

    def work(numbers):
        taken.append(len(numbers))
        return [10 * number for number in numbers]

    together = Batcher(scheduler, work)

    def ask(number):
        return lambda: results.update({number: together(number)})

    with scheduler.for_question():
        threads = [threading.Thread(target=ask(number)) for number in range(6)]
        for thread in threads:
            thread.start()
        until(lambda: len(scheduler._questions) == 6)
    for thread in threads:
        thread.join(10)
    assert results == {number: 10 * number for number in range(6)} and sum(taken) == 6
    assert taken == [LARGEST_BATCH, 6 - LARGEST_BATCH]


def test_what_fails_together_fails_for_each_and_the_next_go_on():
    fails = [True]
    together = Batcher(ModelScheduler(), lambda numbers: 1 // 0 if fails.pop() else numbers)
    with pytest.raises(ZeroDivisionError):
        together(1)
    fails.append(False)
    assert together(2) == 2
