"""The frame of all tests: one thread each, files in memory, hypothesis profiles, nothing of the caller's settings."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

gc.disable()  # until the tests have been collected: see pytest_collection_finish

# Tests run side by side, one process a core; set before torch is loaded, and passed on to processes that tests start.
THREADS = int(os.environ.setdefault("OMP_NUM_THREADS", "1"))
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # tests of several threads would wait for each other by spinning
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

for _name in [name for name in os.environ if name.startswith("CAIRN_") and not name.startswith("CAIRN_TEST_")]:
    del os.environ[_name]

# What tests write is synced as in the product, for which a disk takes milliseconds each time and memory none.
MEMORY, ROOM_BYTES = "/dev/shm", 4 << 30
if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK):
    state = os.statvfs(MEMORY)
    if state.f_bavail * state.f_frsize >= ROOM_BYTES and not state.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = tempfile.tempdir = MEMORY  # a plugin may have asked already

# Triton reads it when it is first imported: kernels are interpreted where no GPU is.
if shutil.which("nvidia-smi") is None:
    os.environ.setdefault("TRITON_INTERPRET", "1")

import certifi  # noqa: E402
import hypothesis  # noqa: E402
import pytest  # noqa: E402

if TYPE_CHECKING:
    from tests.postgresql import Databases

# Begun last, one of them would keep its process at work while the others have ended: by what they take, most first.
LONG_FILES = (
    "retrieval/extraction/test_format_table.py",
    "retrieval/ingest/test_bucket.py",
    "retrieval/test_permissions.py",
    "retrieval/ingest/test_pipeline.py",
    "retrieval/ingest/test_crash.py",
    "app/cli/test_end_to_end.py",
    "app/api/test_api_questions.py",
    "mission/test_attention_decides.py",
    "app/single_sign_on/test_hostile_answers.py",
)

hypothesis.settings.register_profile("default", max_examples=25, deadline=None)
hypothesis.settings.register_profile("slow", max_examples=500, deadline=None)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cairn")
    group.addoption(
        "--catalogue", choices=("sqlite", "postgresql"), default="sqlite", help="where libraries of tests have theirs"
    )
    group.addoption("--store", choices=("file", "s3"), default="file", help="where libraries of tests have memory")


@pytest.fixture(scope="session", autouse=True)
def one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test talks to a machine that has a certificate, but every HTTP client reads the list of those who may sign
    them, for 25 ms: here it has one entry."""
    first, end, _ = Path(certifi.where()).read_text().partition("-----END CERTIFICATE-----")
    file = tmp_path_factory.mktemp("authorities") / "one.pem"
    file.write_text(f"{first}{end}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(file))
        yield


@pytest.fixture(scope="session", autouse=True)
def known_token() -> Iterator[None]:
    """Every home's owner has `OWNER_TOKEN`, wherever a server is tested."""
    import app.auth  # here: tests of the model need none of it
    from tests.app.serving import OWNER_TOKEN

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app.auth, "owner_token", lambda home: OWNER_TOKEN)
        yield


@pytest.fixture(scope="session", autouse=True)
def little_room() -> Iterator[None]:
    """Each new catalogue sets room aside on the disk, of bytes made at random, which takes longer than all else."""
    from storage.catalogue import database

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "ROOM_BYTES", 64 << 10)
        yield


@pytest.hookimpl(optionalhook=True)  # -p no:xdist
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: with as many, a third of the time all tests wait for processes or disks. On two
    cores 1,193 tests took 187 s instead of 201."""
    return (os.cpu_count() or 1) + 1


def pytest_configure(config: pytest.Config) -> None:
    """`-m slow` runs many examples of each property; --hypothesis-profile chooses one by name."""
    if hasattr(config.option, "loadscopereorder"):  # by number of tests, the longest files would come last
        config.option.loadscopereorder = False
    if not config.getoption("--hypothesis-profile"):
        expression = str(config.getoption("markexpr"))
        slow = "slow" in expression and "not slow" not in expression
        hypothesis.settings.load_profile("slow" if slow else "default")


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files come first. Properties are slow tests too: with many examples each."""
    place = {Path(__file__).parent / name: number for number, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: place.get(item.path, len(place)))
    if hypothesis.settings.get_current_profile_name() == "slow":
        for item in items:
            if hypothesis.is_hypothesis_test(getattr(item, "obj", None)):
                item.add_marker(pytest.mark.slow)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Commands of training and tests of threads set their number for the whole process. What came after them in it had
    threads that waited for each other by spinning: for some tests of tiny networks ten seconds of the processor."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != THREADS:
        torch.set_num_threads(THREADS)


def pytest_collection_finish() -> None:
    """What imports made lives as long as the process: looking through it again and again took a tenth of the time."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()
    # Six times a test, pytest's handlers are hung on every logger that tells the root nothing: fifty of torch's.
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and name.partition(".")[0] == "torch":
            logger.propagate = True


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Databases]:
    """Empty catalogues on a PostgreSQL server."""
    from tests import postgresql

    if reason := postgresql.why_not():
        pytest.skip(reason)
    with postgresql.running_server() as url:
        databases = postgresql.Databases(url)
        yield databases
        databases.close()
