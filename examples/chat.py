"""A chat over your documents in a page of Gradio: upload, ask, and see the passages with the words that answer.

python examples/chat.py [FOLDER]     # the library's folder; default: CAIRN_HOME
"""

from __future__ import annotations

import sys
from typing import Any

import gradio as gr

import cairn

Marked = list[tuple[str, str | None]]


def build(library: cairn.Library) -> gr.Blocks:
    """The page. Everything it does goes through the public interface."""

    def add(files: list[str] | None) -> str:
        try:
            added = library.add(*(files or []))
        except cairn.CairnError as error:
            raise gr.Error(str(error)) from error
        return f"{len(added)} added, {len(library.documents.list())} documents in all."

    def ask(question: str, turns: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]], Marked]:
        try:
            answer = library.ask(question)
        except cairn.CairnError as error:
            raise gr.Error(str(error)) from error
        said = [{"role": "user", "content": question}, {"role": "assistant", "content": answer.text}]
        return "", [*turns, *said], marked(answer)

    with gr.Blocks(title="Chat with your documents") as page:
        with gr.Row():
            with gr.Column(scale=2):
                chat = gr.Chatbot(label="Conversation", height=480)
                question = gr.Textbox(label="Question", placeholder="Ask your documents", autofocus=True)
            with gr.Column(scale=1):
                files = gr.File(label="Add documents", file_count="multiple", type="filepath")
                status = gr.Markdown(f"{len(library.documents.list())} documents in all.")
                evidence = gr.HighlightedText(label="What the answer rests on", combine_adjacent=False)
        files.upload(add, files, status)
        question.submit(ask, [question, chat], [question, chat, evidence])
    return page


def marked(answer: cairn.Answer) -> Marked:
    """Each passage under its title and place, with the answering words marked where they stand in it."""
    parts: Marked = []
    for passage in answer.passages or answer.near_misses:
        parts.append((f"{passage.title}, {passage.place}\n" if passage.place else f"{passage.title}\n", "source"))
        words = answer.short or answer.text
        at = passage.text.find(words) if answer.found and words else -1
        if at < 0:
            parts.append((f"{passage.text}\n\n", None))
            continue
        parts += [(passage.text[:at], None), (words, "answer"), (f"{passage.text[at + len(words) :]}\n\n", None)]
    return parts


if __name__ == "__main__":
    with cairn.open(sys.argv[1] if len(sys.argv) > 1 else None) as opened:
        build(opened).launch()
