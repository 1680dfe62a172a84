"""A small real library: two PDFs, six pages and two, read once a process by the shipped checkpoint.

`slowed`, `held` and `ByHand` only make the real library wait, so that a test can look at what happens in between.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from model.checkpoint.landmark_model import LandmarkModel
from retrieval.library import Library
from retrieval.types.records import Job
from tests.retrieval.pdf_maker import Sheet, make_pdf
from tests.tiny_model import shipped_model

RESERVOIR, WALKS = "reservoir.pdf", "walks.pdf"
TITLES = {RESERVOIR: "Handbook of the reservoir", WALKS: "Walks around the lake"}
PAGES = {
    RESERVOIR: [
        "The reservoir supplies drinking water to four towns in the valley. Its dam was finished in 1964. The dam was "
        "raised by three metres in 1981, when the eastern villages were connected to the network. The engineer in "
        "charge of the works was Martha Lindqvist, who later led the regional water board.",
        "Maintenance is carried out every spring, before the snow melts. The outer valves are inspected first, then "
        "the spillway, and last the two turbines in the lower gallery, which must be drained for it. The inspection "
        "takes nine working days and needs a crew of six people.",
        "Water quality is measured at nine stations. Samples are taken on Mondays and Thursdays; the laboratory in "
        "Rosental reports the results within two days and publishes them on the notice board of each town hall. "
        "Chlorine is added only after heavy rain.",
        "In a dry summer the council may restrict the watering of gardens. The first step is a request, the second a "
        "ban between ten in the morning and six in the evening, the third a full ban until the level has recovered. "
        "Farmers keep their allotment in all three steps.",
        "Visitors are welcome on the first Sunday of every month. The tour begins at the gatehouse and lasts ninety "
        "minutes. Groups of more than twelve people write to the office in Rosental at least three weeks ahead. In the "
        "gatehouse a small exhibition shows the tools of the builders, the telephone of the first keeper, and a model "
        "of the valley as it was before the flooding. The last house of the old village was taken down in 1963.",
        "In an emergency the sirens sound for one minute, three times in a row. Everybody below the dam walks to the "
        "meeting point of the parish, which is marked by a green sign; cars stay where they are. The keeper informs "
        "the fire brigade, the water board and the mayors by radio. Drills are held in October, on a Wednesday. "
        "The alarm has been given once in earnest, in the flood of August 2002, and nobody was hurt.",
    ],
    WALKS: [
        "The footpath around the lake is eleven kilometres long. It is closed during works on the dam crest, and a "
        "diversion through the forest is signposted from the northern car park. Dogs must be kept on a lead.",
        "The tower on the eastern shore was built by the forestry office in 1908. It has ninety steps, and on clear "
        "days the mountains can be seen from its platform. The kiosk beside it sells tea from May to October.",
    ],
}
QUESTION = "When was the dam raised?"
UNANSWERED = "Where do unicorns sleep?"


def pdf_of(pages: list[str], title: str = "", *, width: int = 80) -> bytes:
    """A PDF with one text a page, in lines of at most so many characters."""
    return make_pdf([Sheet([(60, 720 - 16 * n, 11, line) for n, line in enumerate(_lines(text, width))])
                     for text in pages], title=title)  # fmt: skip


def _lines(text: str, width: int) -> Iterator[str]:
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            yield line
            line = word
        else:
            line = f"{line} {word}".strip()
    yield line


def fill(folder: Path) -> Path:
    """The home of a library that has read both documents; no sample will be offered to it."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    (home / "sample-offered").touch()
    with Library.open(home, shipped_model) as library:
        for name, pages in PAGES.items():
            (folder / name).write_bytes(pdf_of(pages, TITLES[name]))
            assert library.jobs.run(library.documents.submit(folder / name).id).state == "done"
    return home


def _never() -> LandmarkModel:
    raise AssertionError("no model needed")


@contextmanager
def without_model(home: Path, model: Callable[[], LandmarkModel] = _never) -> Iterator[Library]:
    """An open library that fails where anything needs the model, or calls `model`; no sample will be offered to it."""
    home.mkdir(exist_ok=True)
    (home / "sample-offered").touch()
    with Library.open(home, model) as library:
        library.warm_up = lambda: None  # type: ignore[method-assign]
        library.maintenance.index_blocks = lambda go_on=None: 0  # type: ignore[method-assign]
        yield library


def slowed(library: Library, token_seconds: float) -> None:
    """Answers come with so much time before every token; 0 is the speed of the model again."""
    real = type(library).ask

    def ask(*given: Any, **named: Any) -> Iterator[Any]:
        for item in real(library, *given, **named):
            time.sleep(token_seconds)
            yield item

    library.ask = ask  # type: ignore[method-assign]


def held(library: Library, tokens: int = 2) -> Callable[[], None]:
    """Answers stop after so many tokens, until they are cancelled or the returned function is called."""
    real, free = type(library).ask, threading.Event()

    def ask(*given: Any, cancelled: Callable[[], bool] = lambda: False, **named: Any) -> Iterator[Any]:
        for number, item in enumerate(real(library, *given, cancelled=cancelled, **named), start=1):
            yield item
            while number >= tokens and not cancelled() and not free.wait(0.02):
                pass

    library.ask = ask  # type: ignore[method-assign]
    return free.set


class ByHand:
    """Works the queue off in a thread, but goes on from one report of progress to the next only when told."""

    def __init__(self, library: Library):
        self._library, self._steps, self._free = library, threading.Semaphore(0), False
        self._waits = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> ByHand:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.let_go()
        self._thread.join(30)

    def step(self) -> None:
        """On to the next report. Returns when that has come."""
        assert self._waits.wait(30), "nothing is being read"
        self._waits.clear()
        self._steps.release()
        assert self._waits.wait(30), "there was no further report"

    def let_go(self) -> None:
        """Whatever waits or comes now is read without a stop; the queue is left when it is empty."""
        self._free = True
        self._steps.release()

    def _work(self) -> None:
        while True:
            job = self._library.jobs.run_next(on_progress=self._wait)
            if job is None:
                if self._free:
                    return
                time.sleep(0.02)

    def _wait(self, _job: Job) -> None:
        self._waits.set()
        while not self._free and not self._steps.acquire(timeout=0.02):
            pass
