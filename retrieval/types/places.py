"""How the place of a passage is written wherever it is shown."""

from __future__ import annotations

from collections.abc import Sequence


def place_of(pages: Sequence[int], labels: Sequence[str], total: int = 0) -> str:
    """ "page iv (6 of 40)", "pages 3–4", "slide 2", "sheet Budget"; "" where a file has one part only. `pages` count
    from 1; `total`: pages of the document, 0 where it is not known.

    Labels are printed page numbers, or for files in other parts what the part is, in several words.
    """
    names = [label or str(page) for page, label in zip(pages, labels, strict=True)] if any(labels) else []
    if not labels:
        names = [str(page) for page in pages]
    names = list(dict.fromkeys(names))
    if not names:
        return ""
    first, last = names[0], names[-1]
    if " " in first or " " in last:
        return first if first == last else f"{first} – {last}"
    named = f"page {first}" if first == last else f"pages {first}–{last}"
    if not labels or names == list(dict.fromkeys(map(str, pages))):
        return named
    counted = str(pages[0]) if pages[0] == pages[-1] else f"{pages[0]}–{pages[-1]}"
    return f"{named} ({counted} of {total})" if total else f"{named} ({counted})"
