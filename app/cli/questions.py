"""`cairn search` and `cairn ask`: one question, or many from a file with the model loaded once."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.ingest import GOOD, found_at, ingest_one
from app.cli.options import (
    BlocksOption,
    Call,
    CollectionsOption,
    DocumentsOption,
    LengthOption,
    PathsArgument,
    PositionsOption,
    QuestionsOption,
    VotersOption,
    WhereOption,
    WholeOption,
    WriterOption,
)
from app.cli.output import duration, one_line, printable, say, scope_of, tell, user_message, write_json
from app.exports.answers import answer_row
from retrieval.errors import InvalidRequest
from retrieval.types.answers import (
    DEFAULT_K,
    DEFAULT_MAX_TOKENS,
    DEFAULT_POSITIONS,
    DEFAULT_QUOTE,
    DEFAULT_VOTERS,
    EARLIER_VERSION,
    NEEDS_WRITER,
    Answer,
    Passage,
    Progress,
    outcome_note,
    set_aside_note,
    understood_note,
    who_chose,
)
from retrieval.writers.citations import without_citations

if TYPE_CHECKING:
    from retrieval.library import Library
    from retrieval.types.records import Scope


_VERDICTS = {"supported": "+ supported", "partly": "~ partly", "not_found": "- not found"}


_OF_PASSAGES = (
    *("document_id", "source", "pages", "page_labels", "place", "start_index", "end_index", "text", "score"),
    "block_ids",
)
"""`pages` count from 1; `start_index` and `end_index` count characters of the document's text."""


def place_line(passage: Passage) -> str:
    return ", ".join(part for part in (passage.source, passage.place) if part)


def passage_lines(passages: Iterable[Passage], width: int = 160, numbers: Mapping[int, int] | None = None) -> list[str]:
    """Passages as lines for people, numbered from 1 or, by index, as `numbers` says."""
    return [
        f"{(numbers or {}).get(at, at + 1):2}. {one.score:.3f}  {place_line(one)}\n    {one_line(one.text, width)}"
        for at, one in enumerate(passages)
    ]


def print_written(answer: Answer) -> None:
    """Behind the answer's words: passages by number, and what the documents say to each sentence."""
    if answer.problem:
        say(f"\n{answer.problem}")
    if answer.beside is not None:
        nearest = answer.beside.passage
        say(f"\nThe sentence that comes nearest: “{one_line(nearest.text, 400)}” ({place_line(nearest)})")
    if answer.claims:
        say("\nWhat the documents say to each sentence:")
    for claim in answer.claims:
        missing = ", ".join(answer.text[start:end] for start, end in claim.unfounded)
        note = f" (in no passage cited: {missing})" if missing else ""
        cited = sorted({one.number for one in answer.citations if claim.start <= one.start < claim.end})
        behind = "".join(f" [{number}]" for number in cited)
        say(f" {_VERDICTS[claim.verdict]}: {one_line(claim.text, 160)}{behind}{note}")
    if answer.passages:
        numbers = {citation.passage: citation.number for citation in answer.citations}
        assert answer.writer is not None
        say(f"\nPassages that {answer.writer.name} was given, or that a sentence was found in:")
        say("\n".join(passage_lines(answer.passages, numbers=numbers)))


@dataclass(frozen=True)
class Question:
    """One line of a question file; `id` is the caller's, of any JSON type."""

    id: Any
    text: str
    problem: str = ""
    """What is wrong with the line, which then asks nothing."""


def search(
    call: Call,
    query: Annotated[str | None, typer.Argument(metavar="QUERY", show_default=False, help="What to look for.")] = None,
    top_k: BlocksOption = DEFAULT_K,
    document: DocumentsOption = None,
    collection: CollectionsOption = None,
    where: WhereOption = None,
    questions: QuestionsOption = None,
) -> None:
    """Show the passages found for QUERY, best first."""
    asked = _questions(query, questions)
    with call.library() as library:
        scope = scope_of(library, document, collection, where)
        if questions is not None:
            _answer_all(asked, lambda question: search_row(library, question, top_k, scope))
        elif call.as_json:
            write_json(search_row(library, asked[0], top_k, scope))
        else:
            passages = passage_lines(library.search(asked[0].text, top_k, within=scope), width=400)
            nothing = "Nothing is stored yet. Add documents with `cairn ingest PATH`."
            say("\n\n".join(passages) or (nothing if scope is None else "No document that was chosen holds anything."))


def ask(
    call: Call,
    question: Annotated[
        str | None, typer.Argument(metavar="QUESTION", show_default=False, help="The question.")
    ] = None,
    paths: PathsArgument = None,
    top_k: BlocksOption = DEFAULT_K,
    quote: Annotated[
        bool | None,
        typer.Option(
            "--quote/--free",
            show_default=False,
            help="Copy the answer word for word, or let the model write; default: whatever suits the model.",
        ),
    ] = DEFAULT_QUOTE,
    max_tokens: LengthOption = DEFAULT_MAX_TOKENS,
    voters: VotersOption = DEFAULT_VOTERS,
    positions: PositionsOption = DEFAULT_POSITIONS,
    whole: WholeOption = None,
    document: DocumentsOption = None,
    collection: CollectionsOption = None,
    where: WhereOption = None,
    questions: QuestionsOption = None,
    writer: WriterOption = None,
) -> None:
    """Answer QUESTION and show the passages that were read for it.

    The answer is kept: `cairn list --answers` lists answers, `cairn export` writes one with its evidence.
    """
    asked = _questions(question, questions)
    with call.library(writer=writer) as library:
        if quote is False and not library.can_write:
            raise InvalidRequest(NEEDS_WRITER)
        scope = scope_of(library, [*(document or ()), *_read_first(library, paths or ())], collection, where)

        def answer(one: Question, on_token: Callable[[str], None] = lambda _text: None) -> Answer:
            choice: dict[str, Any] = {"voters": voters, "positions": positions, "whole": whole}
            for item in library.ask(one.text, k=top_k, within=scope, quote=quote, max_tokens=max_tokens, **choice):
                if isinstance(item, Answer):
                    return item
                if isinstance(item, Progress):
                    tell(f"{item.done} of {item.total}: {one_line(item.note)}")
                else:
                    on_token(item.text)
            raise AssertionError("ask ended without an answer")

        if questions is not None:
            _answer_all(asked, lambda one: row_of_answer(answer(one), one.id))
            return
        if call.as_json:
            result = answer(asked[0])
            write_json({**row_of_answer(result, result.id), "question": result.question})
        else:
            result = print_answer(lambda on_token: answer(asked[0], on_token))
    if result.writer is not None and result.problem and not result.tokens:
        tell(result.problem)
        raise typer.Exit(1)


def search_row(library: Library, question: Question, k: int, scope: Scope | None) -> dict[str, Any]:
    """The line that scripts read. A search generates nothing, so what belongs to generation is null."""
    begun = time.perf_counter()
    passages = library.search(question.text, k, within=scope)
    return {
        "id": question.id,
        "passages": [passage.to_dict(*_OF_PASSAGES) for passage in passages],
        "memory_share": None,
        "first_token_seconds": None,
        "seconds": round(time.perf_counter() - begun, 4),
    }


def row_of_answer(answer: Answer, identity: Any) -> dict[str, Any]:
    """The line that scripts read."""
    return {
        "id": identity,
        **answer_row(answer, _OF_PASSAGES),
        "passages": [passage.to_dict(*_OF_PASSAGES) for passage in answer.passages],
        "near_misses": [] if answer.found else [passage.to_dict(*_OF_PASSAGES) for passage in answer.near_misses],
        "memory_share": round(answer.memory_share, 4),
        "first_token_seconds": round(answer.timings.first_token_seconds, 4),
        "seconds": round(answer.timings.seconds, 4),
        "confidence": round(answer.confidence, 4),
    }


def read_questions(path: str) -> list[Question]:
    """A file of {"id", "question"} lines, or stdin for "-"; a line that is none says so in `problem`. Raises
    InvalidRequest for a file without lines."""
    lines = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    questions = []
    for number, line in enumerate(lines.decode("utf-8-sig", "replace").split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            good = isinstance(row, dict) and isinstance(row.get("question"), str) and "id" in row
        except (ValueError, RecursionError):
            row, good = None, False
        if good:
            questions.append(Question(row["id"], row["question"]))
        else:
            identity = row.get("id") if isinstance(row, dict) else None
            problem = f'{path}, line {number}: expected a line like {{"id": "1", "question": "Who ...?"}}.'
            questions.append(Question(identity, "", problem))
    if not questions:
        raise InvalidRequest(f"{path} contains no questions.")
    return questions


def _read_first(library: Library, paths: Sequence[str]) -> list[str]:
    """Ids of the documents at these paths, which are stored if they are not yet. Raises InvalidRequest if there is
    none."""
    rows = [ingest_one(library, source, None, None) for source in found_at(paths)]
    for row in rows:
        if row["error"]:
            tell(f"{row['source']}: {row['error']}")
    read = [row["document_id"] for row in rows if row["status"] in GOOD]
    if paths and not read:
        raise InvalidRequest(f"There is nothing to ask at {', '.join(paths)}: no file there could be read.")
    return read


def _questions(text: str | None, path: str | None) -> list[Question]:
    if (text is None) == (path is None):
        raise typer.BadParameter("give either a question or --questions FILE.jsonl.")
    return read_questions(path) if path is not None else [Question(None, text or "")]


def _answer_all(questions: list[Question], answer: Callable[[Question], dict[str, Any]]) -> None:
    """One line each, also for a question that fails; exit status 1 if any did."""
    failed = False
    for question in questions:
        try:
            if question.problem:
                raise InvalidRequest(question.problem)
            write_json(answer(question))
        except Exception as error:
            message = user_message(error)
            if message is None:
                raise
            failed = True
            write_json({"id": question.id, "error": message})
            tell(f"question {question.id}: {message}")
    if failed:
        raise typer.Exit(1)


def print_answer(answer: Callable[[Callable[[str], None]], Answer]) -> Answer:
    """Print an answer for people: its words as they come, then what they rest on."""
    streamed: list[str] = []

    def write(text: str) -> None:
        text = printable(text)
        streamed.append(text)
        typer.echo(text.lstrip() if len(streamed) == 1 else text, nl=False)
        sys.stdout.flush()

    result = answer(write)
    if streamed:
        say()
    if note := set_aside_note(result):
        say(f"\n{note}")
    # Numbers that the check put behind sentences stand with the sentences below; a repetition at the end only went.
    if not without_citations("".join(streamed)).strip().startswith(without_citations(printable(result.text)).strip()):
        say(result.text.strip())
    if note := understood_note(result):
        say(note)
    if note := outcome_note(result):
        say(note)
    if result.short and result.short != result.text:
        say(f"In short: {result.short}")
    if result.quotation is not None and result.writer is None:
        say(f"From: {place_line(result.quotation.passage)}")
    if result.earlier_version is not None:
        earlier = result.earlier_version.passage
        say(f"\n{EARLIER_VERSION}: “{one_line(earlier.text, 400)}” ({place_line(earlier)})")
    if result.other_sentences:
        say("\nOther possible answers:")
        say("\n".join(passage_lines((other.passage for other in result.other_sentences), width=400)))
    if result.writer is not None:
        print_written(result)
    elif result.passages and (result.decided_by != "attention" or result.shows_attention):
        share = f"{result.memory_share:.0%} of the attention went to documents"
        say(f"\nWhat was {f'read ({share})' if result.decided_by == 'attention' else 'found'}:")
        say("\n".join(passage_lines(result.passages)))
    if not result.found and result.near_misses:
        say("\nNearest passages:")
        say("\n".join(passage_lines(result.near_misses)))
    if line := who_chose(result):
        say(f"\n{line}")
    timings = result.timings
    say(
        f"\nanswer {result.id}, first word after {duration(timings.first_token_seconds)}, "
        f"{duration(timings.seconds)} in all. `cairn export {result.id}` keeps it."
    )
    return result
