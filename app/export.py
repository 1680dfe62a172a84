"""An answer with its evidence as one file: HTML that needs nothing else, or JSON.

- The HTML shows question, answer, passages, marked page pictures, attention by head, and the record for programs.
- Every text from a document or a person is escaped; the file holds no script and forbids any request.
"""

from __future__ import annotations

import base64
import json
from html import escape
from typing import TYPE_CHECKING

from retrieval.errors import CairnError
from retrieval.library import Library
from retrieval.types.passages import Answer, OtherSentence, Passage, PassageBlock

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_PICTURES = 12
PICTURE_WIDTH_PX = 900
FORMAT = "cairn-answer/1"
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

STYLE = """
:root { color-scheme: light dark; --ink: #26241f; --soft: #6d675c; --paper: #faf8f3; --card: #fff; --line: #e4dfd3;
  --mark: 217,154,43; --moss: #2f6f5e; --serif: Palatino, Georgia, serif }
@media (prefers-color-scheme: dark) { :root { --ink: #e9e5db; --soft: #a39c8d; --paper: #171816; --card: #1f211e;
  --line: #34362f; --moss: #86c5ad } }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.6 ui-sans-serif, system-ui, sans-serif }
main { max-width: 52rem; margin: 0 auto; padding: 3rem 1.25rem 5rem }
h1 { font: 500 1.7rem/1.35 var(--serif); margin: .2rem 0 1.2rem }
h2 { font-size: 1rem; margin: 2.6rem 0 .8rem }
.answer { font: 1.15rem/1.7 var(--serif); border-left: 3px solid var(--moss); padding-left: 1rem }
.answer, .card p { white-space: pre-wrap }
.soft { color: var(--soft); font-size: .88rem }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1rem; margin: .8rem 0 }
.card p { font-family: var(--serif); margin: .5rem 0 }
mark { color: inherit; border-radius: 3px }
.page { position: relative; border: 1px solid var(--line); margin: .8rem 0 }
.page img { display: block; width: 100% }
.page i { position: absolute; mix-blend-mode: multiply; border-radius: 2px }
table { border-collapse: collapse; font-size: .8rem }
td, th { padding: .15rem .45rem; text-align: right }
details { margin-top: 2rem }
pre { overflow: auto; font-size: .75rem; max-height: 30rem }
"""


def answer_as_json(_library: Library, answer: Answer) -> str:
    """The whole record; `format` names its version."""
    return json.dumps({"format": FORMAT, **answer.to_dict()}, ensure_ascii=False, indent=1)


def answer_as_html(library: Library, answer: Answer) -> str:
    """One page for people. Pages whose picture can no longer be made are left out, and that is said."""
    strongest = max((block.score for passage in answer.passages for block in passage.blocks), default=0.0) or 1.0
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        "<meta name='viewport' content='width=device-width,initial-scale=1'>",
        f"<title>{escape(answer.question)}</title><style>{STYLE}</style></head><body><main>",
        f"<div class='soft'>Question</div><h1>{escape(answer.question)}</h1>",
        f"<div class='answer'>{_answer(answer) or '(stopped before a word was written)'}</div>",
        _others(answer),
        _facts(answer),
        "<h2>What the model read, strongest first</h2>",
        *(_passage(rank, passage, strongest) for rank, passage in enumerate(answer.passages, 1)),
        "<h2>On the pages</h2>",
        *_pictures(library, answer, strongest),
        "<h2>Not read, but next in line</h2>" if answer.near_misses else "",
        *(_near_miss(passage) for passage in answer.near_misses),
        "<h2>Attention by layer and head</h2>",
        _heat(answer),
        "<details><summary>Full record (JSON)</summary><pre>",
        escape(answer_as_json(library, answer)),
        "</pre></details></main></body></html>",
    ]
    return "".join(parts)


def _answer(answer: Answer) -> str:
    """The answer's text, the words that the model points at in bold."""
    if not answer.short:
        return escape(answer.text)
    parts = [f"<b>{escape(token.text)}</b>" if token.pointed else escape(token.text) for token in answer.tokens]
    return "".join(parts).strip()


def _others(answer: Answer) -> str:
    if not answer.other_sentences:
        return ""
    items = "".join(
        f"<li>{_pointed(other)}<div class='soft'>{escape(other.passage.title or other.passage.source)}, "
        f"{_pages(other.passage)}</div></li>"
        for other in answer.other_sentences
    )
    return f"<h2>It may also be one of these</h2><ol>{items}</ol>"


def _pointed(other: OtherSentence) -> str:
    """The sentence, the words that the model points at in bold."""
    before, pointed, behind = map(escape, other.parts)
    return f"{before}<b>{pointed}</b>{behind}"


def _facts(answer: Answer) -> str:
    found = "" if answer.found else "<b>The documents do not say.</b> What stands above is not supported by them. "
    written = f"Written {escape(answer.created_at)} by {escape(answer.model)}, memory {escape(answer.memory[:16])}"
    share = f"{answer.memory_share:.0%} of the attention was on the documents, the rest on the question and the answer."
    caution = "Attention shows what was read; it does not prove why a word was chosen."
    first, whole = answer.timings.first_token_seconds, answer.timings.seconds
    return (
        f"<p class='soft'>{found}{share} {caution}<br>{written}, in {whole:.1f} s (first word after {first:.2f} s).</p>"
    )


def _passage(rank: int, passage: Passage, strongest: float) -> str:
    return (
        f"<div class='card'><div class='soft'>{rank}. {escape(passage.title or passage.source)}, {_pages(passage)} · "
        f"attention {passage.score:.1%}</div><p>{_marked(passage, strongest)}</p></div>"
    )


def _near_miss(passage: Passage) -> str:
    where = f"{escape(passage.title or passage.source)}, {_pages(passage)}"
    facts = f"{where} · search score {passage.score:.3f}"
    return f"<div class='card'><div class='soft'>{facts}</div><p>{escape(passage.text)}</p></div>"


def _pages(passage: Passage) -> str:
    labels = ", ".join(escape(label) for label in passage.page_labels) or ", ".join(
        str(page + 1) for page in passage.pages
    )
    return f"page {labels}"


def _marked(passage: Passage, strongest: float) -> str:
    """Passage text with its blocks marked; overlapping or outlying spans are clipped, never guessed."""
    out, at = [], passage.start_index
    for block in sorted(passage.blocks, key=lambda one: one.start):
        start, end = max(block.start, at), min(block.end, passage.end_index)
        if start >= end:
            continue
        out.append(escape(_cut(passage, at, start)))
        shade = f"background:rgba(var(--mark),{_opacity(block, strongest):.2f})"
        out.append(f"<mark style='{shade}'>{escape(_cut(passage, start, end))}</mark>")
        at = end
    out.append(escape(_cut(passage, at, passage.end_index)))
    return "".join(out)


def _cut(passage: Passage, start: int, end: int) -> str:
    return passage.text[start - passage.start_index : end - passage.start_index]


def _opacity(block: PassageBlock, strongest: float) -> float:
    return 0.12 + 0.43 * min(1.0, block.score / strongest)


def _pictures(library: Library, answer: Answer, strongest: float) -> Iterable[str]:
    wanted: dict[tuple[str, int], list[tuple[PassageBlock, Passage]]] = {}
    for passage in answer.passages:
        for block in passage.blocks:
            for page in sorted({box.page for box in block.boxes}):
                wanted.setdefault((passage.document_id, page), []).append((block, passage))
    for (document_id, page), found in list(wanted.items())[:MAX_PICTURES]:
        title = escape(found[0][1].title or found[0][1].source)
        try:
            png = library.page_image(document_id, page, width_px=PICTURE_WIDTH_PX)
        except CairnError as error:
            yield f"<p class='soft'>{title}, page {page + 1}: no picture. {escape(str(error))}</p>"
            continue
        boxes = "".join(
            f"<i style='left:{box.x0:.3%};top:{box.y0:.3%};width:{box.x1 - box.x0:.3%};height:{box.y1 - box.y0:.3%};"
            f"background:rgba(var(--mark),{_opacity(block, strongest):.2f})'></i>"
            for block, _ in found
            for box in block.boxes
            if box.page == page
        )
        picture = base64.b64encode(png).decode()
        image = f"<img alt='' src='data:image/png;base64,{picture}'>"
        yield f"<div class='soft'>{title}, page {page + 1}</div><div class='page'>{image}{boxes}</div>"
    if len(wanted) > MAX_PICTURES:
        yield f"<p class='soft'>{len(wanted) - MAX_PICTURES} more pages are not shown here.</p>"


def _heat(answer: Answer) -> str:
    sums = [
        [sum(rows[layer][head] for rows in answer.heat.values()) for head in range(answer.heads)]
        for layer in range(len(answer.layers))
    ]
    top = max((cell for row in sums for cell in row), default=0.0) or 1.0
    head = "".join(f"<th>{number + 1}</th>" for number in range(answer.heads))
    body = "".join(
        f"<tr><th>layer {layer + 1}</th>"
        + "".join(f"<td style='background:rgba(var(--mark),{cell / top * 0.8:.2f})'>{cell:.2f}</td>" for cell in row)
        + "</tr>"
        for layer, row in zip(answer.layers, sums, strict=True)
    )
    return f"<div style='overflow:auto'><table><tr><th>head</th>{head}</tr>{body}</table></div>"
