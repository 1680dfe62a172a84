"""The style sheets that Gradio's frame fetches one by one, as one sheet: a dozen requests become one.

Gradio's build says behind every part that is imported when it is needed which sheets belong to it (`__vite__mapDeps`),
and fetches none that the page has a link to. So the page gets the sheets of all parts of our frame at once, and for
each a disabled link, made by a script (browsers look ahead for links in the HTML, disabled or not). Where a build of
Gradio says it in another way, none is found, and Gradio fetches them as ever; the budget of
`tests/browser/test_first_page.py` tells.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_GRADIO = find_spec("gradio")  # found, not imported: that takes seconds
assert _GRADIO is not None and _GRADIO.origin is not None, "Gradio is installed with Cairn"
ASSETS = Path(_GRADIO.origin).parent / "templates" / "frontend" / "assets"
COMPONENTS = ("column", "tabs", "tabitem")
"""What the frame is built of at first (`app.web.frame`)."""

_ENTRY = re.compile(r'src="\./assets/(index-[\w-]+\.js)"')
_LISTED = re.compile(r"m\.f=\[([^\]]*)\]")
_NEEDED = re.compile(
    r"(?:(?P<component>\w+):\{component:\(\)=>\w+\(\(\)=>)?import\(`\./(?P<module>[\w-]+\.js)`\)"
    r"[^\[\]`]{0,80}__vite__mapDeps\(\[(?P<at>[\d,]*)\]\)"
)


@cache
def sheet_names() -> list[str]:
    """Names of the sheets that the frame needs, in the order in which it would fetch them: its page's own first."""
    page = (ASSETS.parent / "index.html").read_text(encoding="utf-8")
    entry = _ENTRY.search(page)
    if entry is None:
        return []
    names = dict.fromkeys(re.findall(r'href="\./assets/([\w-]+\.css)"', page))
    for module, sheets in _needed(entry[1]):
        names |= dict.fromkeys(sheets)
        for later, more in _needed(module):
            if later.startswith("Blocks-") or later in COMPONENTS:
                names |= dict.fromkeys(more)
    return [name for name in names if (ASSETS / name).is_file()]


def joined() -> str:
    """All of these as one."""
    return "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in sheet_names())


def _needed(module: str) -> list[tuple[str, list[str]]]:
    """For each import of a module that waits until it is needed: its component or else its file, and its sheets."""
    text = (ASSETS / module).read_text(encoding="utf-8")
    listed = _LISTED.search(text)
    if listed is None:
        return []
    files = re.findall(r'"\./([^"]+)"', listed[1])
    return [
        (
            found["component"] if found["component"] in COMPONENTS else found["module"],
            [files[int(at)] for at in found["at"].split(",") if at and files[int(at)].endswith(".css")],
        )
        for found in _NEEDED.finditer(text)
    ]
