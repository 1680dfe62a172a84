"""Durable jobs: claimed once, resumed after a crash, cancelled between two steps."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from storage.errors import NotFound
from storage.records import JobProgress, Principal
from storage.workers import is_alive, this_worker
from tests.storage.stored import FINGERPRINT, add_ready, commit, new_blocks, new_document, open_home, write_shard

# A worker that was, on this machine, and is no more.
DEAD = f"{this_worker().split('/')[0]}/{2**22 + 1}/1"


@pytest.fixture
def submitted(home):
    catalogue, _ = home
    return [catalogue.add_document(new_document(seed)) for seed in range(3)]


def test_jobs_are_claimed_oldest_first_and_once(catalogue, submitted):
    claimed = [catalogue.claim_next_job("worker") for _ in range(4)]
    assert [job and job.id for job in claimed] == [each.job.id for each in submitted] + [None]
    assert {job.state for job in claimed[:3]} == {"running"}
    assert claimed[0].attempt == 1 and claimed[0].started_at is not None
    assert catalogue.claim_job(submitted[0].job.id, "another") is None


def test_progress_is_kept_and_says_whether_to_go_on(catalogue, submitted):
    job = catalogue.claim_next_job("worker")
    progress = JobProgress("reading", 1, 10, 500, 5000, 250.0, 18.0)
    assert catalogue.report_progress(job, progress)
    assert catalogue.job(job.id).progress == progress
    assert catalogue.cancel_job(job.id).cancel_requested
    assert not catalogue.report_progress(job, progress)
    assert not catalogue.report_progress(replace(job, id="gone"), progress)


def test_a_committed_shard_moves_its_job_in_the_same_transaction(home, submitted):
    catalogue, store = home
    job = catalogue.claim_next_job("worker")
    shard = write_shard(store, group=job.document_id)
    progress = JobProgress("reading", tokens_done=9, tokens_total=18)
    catalogue.commit_shard(job.document_id, shard, new_blocks(3), job=job, progress=progress)
    assert catalogue.job(job.id).progress == progress
    assert catalogue.document(job.document_id).num_blocks == 3


def test_a_waiting_job_is_cancelled_at_once(catalogue, submitted):
    job = catalogue.cancel_job(submitted[0].job.id)
    assert job.state == "cancelled" and job.finished_at is not None
    assert catalogue.document(job.document_id).state == "cancelled"
    assert catalogue.claim_next_job("worker").id == submitted[1].job.id


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_a_job_that_ended_badly_can_be_tried_again_behind_its_last_shard(home, submitted, state):
    catalogue, store = home
    job = catalogue.claim_next_job("worker")
    commit(catalogue, store, job.document_id)
    ended = catalogue.end_job(job, state, error="out of memory")
    assert (ended.state, ended.error) == (state, "out of memory")
    assert catalogue.document(job.document_id).state == state
    again = catalogue.retry_job(job.id)
    assert (again.state, again.error, again.cancel_requested) == ("queued", "", False)
    assert catalogue.document(job.document_id).state == "ingesting"
    assert catalogue.claim_job(job.id, "worker").attempt == 1
    assert len(catalogue.shards(job.document_id)) == 1


def test_a_finished_job_is_left_alone_by_retry_and_cancel(home):
    catalogue, store = home
    add_ready(catalogue, store)
    (job,) = catalogue.jobs()
    assert job.state == "done" and job.finished_at is not None
    assert catalogue.retry_job(job.id) == catalogue.cancel_job(job.id) == job


def test_a_failed_job_does_not_take_a_whole_document_from_the_search(home):
    catalogue, store = home
    job = catalogue.claim_job(catalogue.add_document(new_document()).job.id, "worker")
    commit(catalogue, store, job.document_id)
    catalogue.finish_document(job.document_id)
    assert catalogue.end_job(job, "failed", error="x").state == "failed"
    assert catalogue.document(job.document_id).state == "ready"
    with pytest.raises(NotFound):
        catalogue.end_job(replace(job, id="nothing"), "failed")


def test_jobs_of_dead_workers_are_queued_again_and_those_of_living_ones_are_not(catalogue, submitted):
    dead = catalogue.claim_next_job(DEAD)
    living = catalogue.claim_next_job(this_worker())
    assert [job.id for job in catalogue.recover_jobs()] == [dead.id]
    assert catalogue.job(dead.id).state == "queued"
    assert catalogue.job(living.id).state == "running"


def test_a_job_that_brings_its_worker_down_again_and_again_is_given_up_but_not_if_it_gets_ahead(home, submitted):
    catalogue, store = home
    for _ in range(2):
        job = catalogue.claim_next_job(DEAD)
        catalogue.recover_jobs(max_attempts=3)
    job = catalogue.claim_next_job(DEAD)
    assert job.attempt == 3
    shard = write_shard(store, group=job.document_id)
    catalogue.commit_shard(job.document_id, shard, new_blocks(3), job=job, progress=JobProgress("reading"))
    for _ in range(2):
        catalogue.recover_jobs(max_attempts=3)
        assert catalogue.claim_next_job(DEAD).id == job.id
    catalogue.recover_jobs(max_attempts=3)
    assert catalogue.job(job.id).state == "failed"
    assert "died 3 times" in catalogue.job(job.id).error
    assert catalogue.document(job.document_id).state == "failed"
    assert catalogue.retry_job(job.id).attempt == 0


def test_a_job_whose_cancelling_the_crash_interrupted_is_cancelled_at_recovery(catalogue, submitted):
    job = catalogue.claim_next_job(DEAD)
    catalogue.cancel_job(job.id)
    catalogue.recover_jobs()
    assert catalogue.job(job.id).state == "cancelled"
    assert catalogue.document(job.document_id).state == "cancelled"


def test_a_released_job_waits_for_the_next_worker(catalogue, submitted):
    job = catalogue.claim_next_job("worker")
    catalogue.release_job(job)
    assert catalogue.claim_next_job("another").id == job.id


def test_active_jobs_are_listed_newest_first(catalogue, submitted):
    catalogue.end_job(catalogue.claim_next_job("worker"), "failed")
    active = catalogue.jobs(active_only=True)
    assert [job.id for job in active] == [submitted[2].job.id, submitted[1].job.id]
    assert len(catalogue.jobs()) == 3
    assert len(catalogue.jobs(limit=1)) == 1


def test_a_process_is_alive_until_it_ends_and_its_number_may_be_used_again():
    assert is_alive(this_worker())
    child = subprocess.run(
        [sys.executable, "-c", "from storage.workers import this_worker; print(this_worker())"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not is_alive(child.stdout.strip())
    host, _, started = this_worker().split("/")
    assert not is_alive(f"{host}/{os.getpid()}/{int(started) - 1}")  # same number, an earlier process
    assert not is_alive(f"another-{host}/{os.getpid()}/{started}")
    assert not is_alive("worker")


def test_jobs_survive_reopening(tmp_path):
    catalogue, _ = open_home(tmp_path)
    job = catalogue.add_document(new_document()).job
    catalogue.close()
    catalogue, _ = open_home(tmp_path)
    assert catalogue.claim_next_job("worker").id == job.id
    assert catalogue.fingerprints() == [FINGERPRINT]
    catalogue.close()


@pytest.fixture
def people(home):
    """Two users' catalogues over the same tables."""
    catalogue, _ = home
    users = [catalogue.add_user(name, "no password") for name in ("ann", "bob")]
    return [catalogue.acting_for(Principal(user.id, user.name)) for user in users]


def test_owners_take_turns_whoever_queued_more(catalogue, people):
    ann, bob = people
    many = [ann.add_document(new_document(seed)).job.id for seed in range(5)]
    few = [bob.add_document(new_document(seed)).job.id for seed in range(10, 12)]
    claimed = []
    for _ in range(7):
        job = catalogue.claim_next_job("worker")
        claimed.append(job.id)
        catalogue.end_job(job, "failed")
    assert claimed.index(few[0]) <= 1 and claimed.index(few[1]) <= 3
    assert [job for job in claimed if job in many] == many and [job for job in claimed if job in few] == few


def test_an_owner_with_a_running_job_comes_last(catalogue, people):
    ann, bob = people
    first, second = (ann.add_document(new_document(seed)).job.id for seed in range(2))
    other = bob.add_document(new_document(10)).job.id
    assert catalogue.claim_job(first, "worker").state == "running"
    catalogue.end_job(catalogue.claim_job(other, "worker"), "failed")
    late = bob.add_document(new_document(11)).job.id
    assert [catalogue.claim_next_job("worker").id for _ in range(2)] == [late, second]


def test_a_worker_may_ask_for_jobs_of_idle_owners_only(catalogue, people):
    ann, bob = people
    jobs = [ann.add_document(new_document(seed)).job.id for seed in range(2)]
    assert catalogue.claim_next_job("worker", idle_owners_only=True).id == jobs[0]
    assert catalogue.claim_next_job("worker", idle_owners_only=True) is None
    assert not catalogue.others_wait(jobs[0])
    other = bob.add_document(new_document(10)).job.id
    assert catalogue.others_wait(jobs[0])
    assert catalogue.claim_next_job("worker", idle_owners_only=True).id == other
    assert (ann.num_active_jobs(), bob.num_active_jobs(), catalogue.num_active_jobs()) == (2, 1, 3)
