"""The page's own modules as one script and one style sheet, put together when the server starts.

- The modules of `static/` stay what is written, linted and read. Nothing is compiled: each becomes a function that
  returns what it exports, behind the modules that it imports from. What that would change the meaning of is refused.
- The file names carry a digest of the content, so browsers keep them for good.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from app.web.words import page_words

STATIC = Path(__file__).parent / "static"
STYLES = ("frame.css", "cairn.css", "writer.css")

_IMPORT = re.compile(r'^import \{(?P<names>[^}]*)\} from "\./(?P<module>[\w-]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const) (?P<name>\w+))", re.MULTILINE)
_OTHERWISE = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


@dataclass(frozen=True)
class Asset:
    """A file of the page: its name with a digest, its media type, and its content, also compressed."""

    name: str
    media_type: str
    content: bytes
    compressed: bytes


@cache
def page_assets() -> tuple[Asset, Asset]:
    """The script and the style sheet of the page."""
    modules = {path.name: path.read_text(encoding="utf-8") for path in sorted(STATIC.glob("*.js"))}
    script = bundle("main.js", {**modules, "words.js": page_words()})
    styles = "\n".join((STATIC / name).read_text(encoding="utf-8") for name in STYLES)
    return _asset("page", "js", "text/javascript", script), _asset("page", "css", "text/css", styles)


def page_head() -> bytes:
    """What stands in the head of the page before anything of Gradio: so the page is painted, and can be used, while
    Gradio is still being fetched."""
    script, style = page_assets()
    return (
        '<meta name="color-scheme" content="light dark">'
        '<link rel="icon" href="./ui/mark.svg" type="image/svg+xml">'
        f'<link rel="stylesheet" href="./ui/{style.name}">'
        f'<script type="module" src="./ui/{script.name}"></script>'
    ).encode()


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
