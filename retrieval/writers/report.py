"""What `cairn doctor` says of the writer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from retrieval.errors import WriterError
from retrieval.writers.local.local_writer import LocalWriter
from retrieval.writers.local.memory_files import stored_bytes
from retrieval.writers.protocol import Writer


def writer_report(writer: Writer, home: Path) -> tuple[dict[str, Any], list[str]]:
    """Plain values, and problems as sentences.

    Of a checkpoint, also how its answers over stored passages compare with reading again (`repair`, `agreement_f1`,
    `first_token_kl`), and how many built-in questions it answers right (`right`, over passages as they are read for
    it; `right_again`, having read them all again); measured now if it never was, which takes about a minute on a
    processor.
    """
    report: dict[str, Any] = {
        "name": writer.name,
        "kind": writer.kind,
        "leaves_machine": writer.leaves_machine,
        "stored_bytes": stored_bytes(home),
    }
    if not isinstance(writer, LocalWriter):
        return report, []
    try:
        agreement = writer.agreement()
    except WriterError as error:
        return report, [str(error)]
    reached = agreement.reached
    report |= {"repair": writer.repair, "agreement_f1": reached.f1, "first_token_kl": reached.kl}
    report |= {"right": reached.right, "right_again": agreement.right_again}
    if agreement.repair < 1:
        return report, []
    best = agreement.levels[-1]
    return report, [
        f"{writer.name} answers otherwise over stored passages (agreement {best.f1:.2f} where half of them is read "
        "again), so it reads all passages again for every question. That is right, but slower: choose another "
        "checkpoint, or a GPU."
    ]
