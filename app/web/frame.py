"""The page: Gradio Blocks with five tabs, mounted at "/".

- Settings are Gradio components, changed through Gradio events.
- The other tabs are empty columns that `static/main.js` fills from /api/v1. Nothing a document, a file name or a person
  says passes through a Gradio template (gr.HTML runs its templates as JavaScript), so no `unsafe-eval` is needed.
- No request leaves this machine: system fonts, no analytics, no version check, no hub, no run history.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr
from fastapi import FastAPI
from pydantic import ValidationError

from app.http_security import principal_of
from app.preferences import MAX_ANSWER_TOKENS, MAX_TOP_K, PreferenceFile, PreferenceFolder, Preferences
from app.web.bundle import page_assets
from retrieval.types.answers import WRITTEN_TOKENS

# Fonts of the reader's own system, so that no font file is fetched; colours are set in frame.css.
SANS = ("ui-sans-serif", "system-ui", "sans-serif")
MONO = ("ui-monospace", "Consolas", "monospace")
VOTER_CHOICES = [
    ("Together (fastest, default)", "group"),
    ("Each for itself", "head"),
    ("Each for itself, and for every word anew (slowest)", "token"),
]
POSITION_CHOICES = [("All alike (default)", "library"), ("In their order, the newest nearest", "paper")]
AS_SUITS = "auto"  # a radio without a value would show no choice
WAYS: list[tuple[str, bool | str]] = [
    ("As suits the model", AS_SUITS),
    ("In the model's own words", False),
    ("Word for word from the documents", True),
]
NOT_SAVED = "Not saved: the value is out of range."


def mount_ui(app: FastAPI, *, preferences: PreferenceFolder, home: Path, own_words: Callable[[], bool]) -> None:
    """Build the page and mount it at "/" of `app`. `own_words`: whether answers can be worded, not only quoted."""
    _keep_gradio_private(home / "web-cache")
    gr.mount_gradio_app(
        app,
        build_blocks(preferences, own_words),
        path="/",
        theme=gr.themes.Base(font=SANS, font_mono=MONO),
        # Behind Gradio's styles, once it has begun (ours stand before them, see `bundle.own_page`).
        head=f'<link rel="stylesheet" href="./ui/{page_assets()[1].name}">',
        show_error=False,
        run_history=False,
        footer_links=[],
        ssr_mode=False,
        pwa=False,
        enable_monitoring=False,
        mcp_server=False,
        blocked_paths=[str(home)],
    )


def build_blocks(preferences: PreferenceFolder, own_words: Callable[[], bool]) -> gr.Blocks:
    blocks: gr.Blocks = gr.Blocks(title="Cairn", analytics_enabled=False, fill_width=True, delete_cache=(3600, 86400))
    with blocks:
        gr.Column(elem_id="cairn-header")
        with gr.Tabs(elem_id="cairn-tabs", selected="ask"):
            for name in ("Ask", "Library", "History"):
                with gr.Tab(name, id=name.lower(), render_children=True):
                    gr.Column(elem_id=f"cairn-{name.lower()}")
            settings = gr.Tab("Settings", id="settings", render_children=True)
            with settings, gr.Column(elem_id="cairn-settings"):
                gr.Column(elem_id="cairn-appearance")
                gr.Column(elem_id="cairn-writer")
                _settings(settings, preferences, own_words)
            with gr.Tab("Machine", id="machine", render_children=True):
                gr.Column(elem_id="cairn-machine")
    blocks.queue(api_open=False, max_size=64)
    return blocks


def _settings(tab: gr.Tab, preferences: PreferenceFolder, own_words: Callable[[], bool]) -> None:
    """Drawn when they are opened: what Gradio needs for sliders and the like is not fetched for those who only ask."""

    @gr.render(triggers=[tab.select], show_progress="hidden")  # type: ignore[untyped-decorator]
    def draw(request: gr.Request) -> None:
        _controls(preferences, _own(preferences, request).current, own_words())


def _controls(preferences: PreferenceFolder, now: Preferences, own_words: bool) -> None:
    """Each control saves itself; the next question uses it."""
    ways = [choice for choice in WAYS if choice[1] is not False or now.quote is False or own_words]
    way = gr.Radio(
        ways, value=AS_SUITS if now.quote is None else now.quote, label="How answers are written",
        elem_id="setting-quote", key="quote", interactive=True,
    )  # fmt: skip
    top_k = gr.Slider(
        1, MAX_TOP_K, step=1, value=now.top_k, label="Parts read at a time",
        info="How many parts of the documents may be read for every word. More finds more and takes longer.",
        elem_id="setting-top-k", key="top-k", interactive=True,
    )  # fmt: skip
    voters = gr.Radio(
        VOTER_CHOICES, value=now.voters, label="How the parts are chosen", elem_id="setting-voters", interactive=True,
        info="The model looks in several ways at once, which can choose together or one by one.", key="voters",
    )  # fmt: skip
    positions = gr.Radio(
        POSITION_CHOICES, value=now.positions, label="Where the parts stand", elem_id="setting-positions",
        info="Of a model that writes its answers: how far before the question it sees the parts that it reads.",
        key="positions", interactive=True,
    )  # fmt: skip
    length = gr.Slider(
        16, MAX_ANSWER_TOKENS, step=16, value=now.max_tokens or WRITTEN_TOKENS, label="Longest answer, in tokens",
        info="About three quarters of a word each.", elem_id="setting-length", key="length", interactive=True,
    )  # fmt: skip
    low = gr.Slider(
        0.0, 0.9, step=0.05, value=now.low_share, label="Warn below this share of attention on documents",
        info="An answer written mostly from the question and itself deserves doubt.",
        elem_id="setting-low", key="low", interactive=True,
    )  # fmt: skip
    state = gr.Markdown("", elem_id="setting-state", container=False, key="state")

    def save(field: str) -> Callable[[Any, gr.Request], str]:
        def saved(value: Any, request: gr.Request) -> str:
            try:
                changed = _own(preferences, request).change(**{field: None if value == AS_SUITS else value})
            except ValidationError:
                return NOT_SAVED
            return saved_note(field, changed)

        return saved

    controls = {
        way: "quote",
        top_k: "top_k",
        voters: "voters",
        positions: "positions",
        length: "max_tokens",
        low: "low_share",
    }
    for control, field in controls.items():
        listen = getattr(control, "input")  # noqa: B009 - events are made when Gradio starts; types do not know them
        listen(
            save(field), control, state, api_visibility="private", show_progress="hidden", trigger_mode="always_last"
        )


def _own(preferences: PreferenceFolder, request: gr.Request) -> PreferenceFile:
    """Gradio passes on the request that brought the event, as `AccessMiddleware` admitted it."""
    assert request.request is not None
    return preferences.of(principal_of(request.request))


def saved_note(field: str, now: Preferences) -> str:
    """Names the value that is stored now: a bare "Saved." could be left over from the change before."""
    voters = {"group": "together", "head": "by each way of looking", "token": "by each way of looking and word"}
    positions = {"library": "all alike", "paper": "in their order"}
    ways = {True: "word for word from the documents", False: "in the model's own words", None: "as suits the model"}
    words = {
        "quote": f"answers {ways[now.quote]}",
        "top_k": f"{now.top_k} parts read at a time",
        "voters": f"parts are chosen {voters[now.voters]}",
        "positions": f"parts stand {positions[now.positions]}",
        "max_tokens": f"answers of at most {now.max_tokens} tokens",
        "low_share": f"a warning below {now.low_share:.0%}",
    }
    return f"Saved: {words[field]}."


def _keep_gradio_private(folder: Path) -> None:
    """Gradio reads these from the environment only: no analytics, no hub, its temporary files in our own folder."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ["GRADIO_TEMP_DIR"] = str(folder)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
