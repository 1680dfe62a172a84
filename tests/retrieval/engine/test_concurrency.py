"""Several people at once while documents come and go: each gets the answer he would get alone, from his documents."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from retrieval.types.records import Scope
from tests.retrieval.conftest import FOX, ask, prose, substance

PEOPLE = 8


def test_eight_people_get_the_answers_that_each_gets_alone(library, three):
    ids = list(three.values())
    asked = [(f"What does the keeper do near {number}?", Scope((ids[number % 3],))) for number in range(PEOPLE)]
    alone = [substance(ask(library, question, within=scope)) for question, scope in asked]
    with ThreadPoolExecutor(PEOPLE) as pool:
        together = list(pool.map(lambda each: substance(ask(library, each[0], within=each[1])), asked))
    assert together == alone


def test_documents_that_come_and_go_never_reach_a_question_about_others(library, three, write):
    """A clerk adds and deletes; people ask about one document each and must read nothing else."""
    stop, failures = threading.Event(), []

    def clerk():
        for number in range(100):
            if stop.is_set():
                return
            job = library.jobs.run(library.documents.submit(write(f"{number}.txt", prose(500 + number, 400))).id)
            library.search("anything", 2)
            library.documents.delete([job.document_id])

    def person(name: str):
        try:
            expected = None
            for _ in range(6):
                answer = ask(library, "What does the fox do?", within=Scope((three[name],)))
                evidence = {passage.document_id for passage in (*answer.passages, *answer.near_misses)}
                assert evidence == {three[name]}, "evidence of another document"
                found = [(token.token_id, token.logprob, token.blocks) for token in answer.tokens]
                expected = expected or found
                assert found == expected, "another answer than before"
        except Exception as error:
            failures.append(error)
            raise

    worker = threading.Thread(target=clerk)
    worker.start()
    people = [threading.Thread(target=person, args=(name,)) for name in (*three, *three)]
    for thread in people:
        thread.start()
    for thread in people:
        thread.join(300)
    stop.set()
    worker.join(60)
    assert not failures and not worker.is_alive()
    assert library.maintenance.verify().ok and not library.maintenance.verify().orphans


def test_the_same_file_handed_in_by_many_at_once_is_stored_once(library, write):
    path = write("a.txt", FOX)
    with ThreadPoolExecutor(PEOPLE) as pool:
        jobs = list(pool.map(lambda _: library.documents.submit(path), range(PEOPLE)))
    assert len({job.document_id for job in jobs}) == 1 == len(library.documents.list())
    with ThreadPoolExecutor(3) as pool:
        states = list(pool.map(lambda _: library.jobs.run_next(), range(3)))
    assert sum(job is not None for job in states) == 1
    assert library.documents.list()[0].state == "ready" and not library.maintenance.verify().orphans
