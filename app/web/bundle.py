"""The page's own modules as one script and one style sheet, put together when the server starts.

- The modules of `static/` stay what is written, linted and read. Nothing is compiled: each becomes a function that
  returns what it exports, behind the modules that it imports from. What that would change the meaning of is refused.
- The file names carry a digest of the content, so browsers keep them for good.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from app.web import gradio_styles
from retrieval.extraction.formats import FORMATS
from retrieval.types import answers

STATIC = Path(__file__).parent / "static"
_MARK = STATIC / "mark.svg"
STYLES = ("frame.css", "cairn.css", "writer.css")
WORDS = (
    "OUTCOMES", "WHO_CHOSE", "FROM_ITSELF", "EARLIER_VERSION", "FOR_WRITERS", "ONE_SENTENCE", "WRITER_SET_UP",
    "QUOTED_INSTEAD", "SET_ASIDE",
)  # fmt: skip

_IMPORT = re.compile(r'^import \{(?P<names>[^}]*)\} from "\./(?P<module>[\w-]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const) (?P<name>\w+))", re.MULTILINE)
_OTHERWISE = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)

_GRADIO_STYLE = re.compile(rb'<link rel="stylesheet"[^>]* href="\./assets/index-[\w-]+\.css">')
_RESIZER = re.compile(rb"<script>(?:(?!</script>).)*/iframeResizer\.(?:(?!</script>).)*</script>", re.DOTALL)


@dataclass(frozen=True)
class Asset:
    """A file of the page: its name with a digest, its media type, and its content, also compressed."""

    name: str
    media_type: str
    content: bytes
    compressed: bytes


@cache
def page_assets() -> tuple[Asset, Asset, Asset]:
    """The script and the style sheet of the page, and what Gradio's frame needs of its own styles."""
    modules = {path.name: path.read_text(encoding="utf-8") for path in sorted(STATIC.glob("*.js"))}
    script = bundle("main.js", {**modules, "words.js": page_words()})
    styles = "\n".join((STATIC / name).read_text(encoding="utf-8") for name in STYLES)
    return (
        _asset("page", "js", "text/javascript", script),
        _asset("page", "css", "text/css", styles),
        _asset("frame", "css", "text/css", gradio_styles.joined()),
    )


def own_page(page: bytes) -> bytes:
    """Gradio's page with ours before it, so that ours is painted, and can be used, while Gradio is still being fetched.

    Its style sheets come as one, and the script for pages inside others' pages, which this one refuses to be, goes.
    Other pages are left alone: only this one has Gradio's element.
    """
    if b"<gradio-app" not in page:
        return page
    script, style, frame = page_assets()
    head = (
        '<meta name="color-scheme" content="light dark">'
        f'<link rel="icon" href="{mark_address()}" type="image/svg+xml">'
        f'<link rel="stylesheet" href="./ui/{style.name}">'
        f'<script type="module" src="./ui/{script.name}"></script>'
    ).encode()
    page = page.replace(b"<head>", b"<head>" + head, 1)
    frame_link = f'<link rel="stylesheet" href="./ui/{frame.name}">'.encode()
    return _GRADIO_STYLE.sub(frame_link, _RESIZER.sub(b"", page), count=1)


def _asset(name: str, ending: str, media_type: str, text: str) -> Asset:
    content = text.encode()
    digest = hashlib.sha256(content).hexdigest()[:12]
    return Asset(f"{name}.{digest}.{ending}", media_type, content, gzip.compress(content, mtime=0))


def bundle(entry: str, modules: Mapping[str, str]) -> str:
    """One module that does what `entry` does. Raises ValueError for what cannot be bundled, naming the module."""
    parts: dict[str, str] = {}
    _add(entry, modules, parts, ())
    return "\n".join(parts.values())


def _add(name: str, modules: Mapping[str, str], parts: dict[str, str], above: tuple[str, ...]) -> None:
    if name in parts:
        return
    if name in above:
        raise ValueError(f"modules import each other: {' -> '.join((*above, name))}")
    if name not in modules:
        raise ValueError(f"{above[-1]} imports {name}, which is not there")
    text = modules[name]
    for found in _IMPORT.finditer(text):
        _add(found["module"], modules, parts, (*above, name))
    text = _IMPORT.sub(
        lambda found: f"const {{{found['names'].replace(' as ', ': ')}}} = {_of(found['module'])};\n", text
    )
    exported = [found["name"] for found in _EXPORT.finditer(text)]
    text = _EXPORT.sub("", text)
    if other := _OTHERWISE.search(text):
        raise ValueError(f"{name} cannot be bundled: {other[0]}")
    parts[name] = f"const {_of(name)} = (() => {{\n{text}\nreturn {{ {', '.join(exported)} }};\n}})();"


def _of(module: str) -> str:
    return f"module_{module.removesuffix('.js').replace('-', '_')}"


def page_words() -> str:
    """The module `words.js`: what `retrieval.types.answers` and the table of formats say, the mark, and which style
    sheets Gradio has."""
    values = {name: getattr(answers, name) for name in WORDS} | {
        "DRAWN_KINDS": [each.kind for each in FORMATS if each.drawn],
        "CELL_KINDS": [each.kind for each in FORMATS if each.cells],
        "KIND_OF_SUFFIX": {suffix: each.kind for each in FORMATS for suffix in each.suffixes},
        "MARK": mark_address(),
        "FRAME_STYLES": [f"./assets/{name}" for name in gradio_styles.sheet_names()],
    }
    return "".join(f"export const {name} = {json.dumps(value)};\n" for name, value in values.items())


def mark_address() -> str:
    """Cairn's mark as an address of its own content, which nobody has to fetch."""
    return "data:image/svg+xml;base64," + base64.b64encode(_MARK.read_bytes()).decode()
