"""Cairn as the retriever of a LangChain chain: passages in, an answer of your own chat model out.

from examples.chain import chain_of
print(chain_of(cairn.open("~/papers"), chat_model).invoke("When was the dam raised?"))
"""

from __future__ import annotations

from typing import Any

from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnablePassthrough

import cairn
from retrieval.langchain import LandmarkRetriever

PROMPT = ChatPromptTemplate.from_template("Answer from these passages:\n{passages}\n\nQuestion: {question}")


def chain_of(library: cairn.Library, chat_model: Any, k: int = 4) -> Runnable[str, str]:
    """From a question to an answer in the words of `chat_model`, each passage with its file and page."""
    passages = LandmarkRetriever(library=library.library, k=k) | _written
    return {"passages": passages, "question": RunnablePassthrough()} | PROMPT | chat_model | StrOutputParser()


def _written(documents: list[Document]) -> str:
    return "\n\n".join(f"[{one.metadata['source']}, {one.metadata['place']}] {one.page_content}" for one in documents)
