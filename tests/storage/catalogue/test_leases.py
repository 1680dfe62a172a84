"""Leases: a job that a worker was silent about too long is another's, and the first can change nothing any more."""

import threading
import time

import pytest

from storage.errors import LeaseLost, NotFound
from storage.fingerprint import MemoryFingerprint
from storage.records import JobProgress
from storage.workers import this_worker
from tests.storage.stored import commit, new_blocks, new_document, write_shard

ELSEWHERE = "another-machine/7/1"


@pytest.fixture
def lost(home):
    """A job as the worker that lost it knows it, and as the one that has it now."""
    catalogue, _ = home
    catalogue.add_document(new_document())
    first = catalogue.claim_next_job(ELSEWHERE)
    expire(catalogue)
    assert [job.id for job in catalogue.recover_jobs()] == [first.id]
    return first, catalogue.claim_next_job("third-machine/7/1")


def expire(catalogue):
    catalogue.database.lease_seconds = 0.0
    time.sleep(0.002)


def test_a_job_of_another_machine_is_left_alone_until_its_lease_expires(home):
    catalogue, _ = home
    catalogue.add_document(new_document())
    job = catalogue.claim_next_job(ELSEWHERE)
    assert catalogue.recover_jobs() == []
    begun = catalogue.job(job.id).heartbeat_at
    time.sleep(0.002)
    assert catalogue.renew_lease(job)
    assert catalogue.job(job.id).heartbeat_at > begun, "the lease is counted from here on"
    assert catalogue.recover_jobs() == []
    expire(catalogue)
    assert [each.id for each in catalogue.recover_jobs()] == [job.id]
    assert not catalogue.renew_lease(job)


def test_a_job_of_this_process_is_not_given_up_because_its_heartbeat_is_late(home):
    catalogue, _ = home
    catalogue.add_document(new_document())
    job = catalogue.claim_next_job(this_worker())
    expire(catalogue)
    assert catalogue.recover_jobs() == [] and catalogue.renew_lease(job)


def test_a_worker_that_lost_its_job_stores_nothing_and_ends_nothing(home, lost):
    catalogue, store = home
    old, new = lost
    document_id = old.document_id
    assert (new.id, new.attempt) == (old.id, 2)
    shard = write_shard(store, group=document_id)
    for act in (
        lambda: catalogue.commit_shard(document_id, shard, new_blocks(3), job=old, progress=JobProgress("reading")),
        lambda: catalogue.finish_document(document_id, job=old),
        lambda: catalogue.drop_shards(document_id, job=old),
        lambda: catalogue.save_extracted(document_id, text="x", pages_read=[], job=old),
        lambda: catalogue.end_job(old, "failed"),
    ):
        before = catalogue.document(document_id), catalogue.job(new.id), catalogue.shards()
        with pytest.raises(LeaseLost, match="third-machine"):
            act()
        assert (catalogue.document(document_id), catalogue.job(new.id), catalogue.shards()) == before
    assert not catalogue.report_progress(old, JobProgress("reading", tokens_done=5))
    catalogue.release_job(old)
    assert catalogue.job(new.id) == new


def test_the_worker_that_has_the_job_now_goes_on_behind_what_the_first_one_stored(home):
    catalogue, store = home
    catalogue.add_document(new_document())
    first = catalogue.claim_next_job(ELSEWHERE)
    commit(catalogue, store, first.document_id)
    expire(catalogue)
    catalogue.recover_jobs()
    second = catalogue.claim_next_job("third-machine/7/1")
    shard = write_shard(store, group=second.document_id)
    catalogue.commit_shard(second.document_id, shard, new_blocks(3, 3), job=second)
    assert catalogue.finish_document(second.document_id, job=second).num_blocks == 6
    with pytest.raises(LeaseLost):
        catalogue.finish_document(second.document_id, job=first)


def test_a_document_that_another_model_is_to_read_is_no_longer_its_workers(home):
    catalogue, store = home
    catalogue.add_document(new_document())
    old = catalogue.claim_next_job(ELSEWHERE)
    commit(catalogue, store, old.document_id)
    digest = catalogue.put_fingerprint(MemoryFingerprint({"model": "another"}))
    assert len(catalogue.reassign_model(old.document_id, digest)) == 1
    shard = write_shard(store, group=old.document_id)
    with pytest.raises(LeaseLost):
        catalogue.commit_shard(old.document_id, shard, new_blocks(3), job=old)
    assert catalogue.shards() == [] and catalogue.document(old.document_id).fingerprint == digest
    again = catalogue.claim_next_job(ELSEWHERE)
    assert (again.id, again.attempt) == (old.id, 1)
    assert len(catalogue.jobs()) == 1, "it is the same job, not a second one"
    catalogue.commit_shard(again.document_id, shard, new_blocks(3), job=again)
    assert catalogue.finish_document(again.document_id, job=again).num_blocks == 3


def test_of_a_deleted_document_the_lease_is_gone_and_not_lost(home, lost):
    catalogue, store = home
    _, new = lost
    catalogue.delete_documents([new.document_id])
    with pytest.raises(NotFound):
        catalogue.commit_shard(new.document_id, write_shard(store), new_blocks(3), job=new)
    assert not catalogue.renew_lease(new)


def test_a_released_and_reclaimed_job_is_another_lease_of_the_same_worker(home):
    catalogue, _ = home
    catalogue.add_document(new_document())
    first = catalogue.claim_next_job(ELSEWHERE)
    catalogue.release_job(first)
    second = catalogue.claim_next_job(ELSEWHERE)
    with pytest.raises(LeaseLost):
        catalogue.end_job(first, "failed")
    assert catalogue.end_job(second, "failed").state == "failed"


def test_workers_that_claim_at_the_same_time_get_different_jobs(home):
    catalogue, _ = home
    ids = {catalogue.add_document(new_document(seed)).job.id for seed in range(12)}
    claimed, ready = [], threading.Barrier(4)

    def claim(number):
        ready.wait()
        while (job := catalogue.claim_next_job(f"machine-{number}/7/1")) is not None:
            claimed.append(job.id)

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claimed) == len(ids) and set(claimed) == ids
