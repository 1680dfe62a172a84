// What stands on the Ask page before the first question: what this is, and questions that the documents here can really answer.

import { get } from "./api.js";
import { h } from "./dom.js";
import { dropZone } from "./files.js";
import { within } from "./scope.js";
import { MARK } from "./words.js";

const SUGGESTED = 3;
const FEW = 2; // documents: with fewer, the sample handbook alone, the first thing to do is to bring one's own

// Questions of the newest documents that a question put now may read.
export async function suggestedQuestions(scope) {
  const { document_ids, collection_ids, where } = within(scope);
  const asked = { count: SUGGESTED, document_id: document_ids, collection_id: collection_ids, where };
  return (await get("suggestions", asked)).suggestions;
}

// `documents`: how many there are, null while nobody knows.
export function welcome({ documents, suggestions, onAsk, onAdd }) {
  return h(
    "div",
    { class: "hero" },
    h("img", { src: MARK, alt: "", width: "64", height: "64" }),
    h("h2", {}, "Ask your documents"),
    h(
      "p",
      {},
      "The passages that may answer are found in the stored memory of your documents, the sentence that answers best is marked, and you see it on its page.",
    ),
    documents !== null && documents < FEW ? h("div", { class: "first-files" }, dropZone("first-files", onAdd)) : null,
    documents === 0
      ? null
      : h(
          "div",
          { class: "samples", role: "group", "aria-label": "What can be asked" },
          suggestions.map(({ question, title }) =>
            h(
              "button",
              { type: "button", class: "sample", onclick: () => onAsk(question) },
              h("span", {}, question),
              h("span", { class: "sample-title" }, title),
            ),
          ),
        ),
  );
}
