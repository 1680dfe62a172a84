// The answer as tokens that can be pointed at, its meter, and its actions.

import { address, get, remove } from "./api.js";
import { announce, askText, button, confirm, duration, h, icon, pagesOf, percent, placeOf, replace, toast, weight } from "./dom.js";
import { cutAtSpan, opacity } from "./marking.js";
import { openViewer } from "./viewer.js";
import { EARLIER_VERSION, FOR_WRITERS, FROM_ITSELF, ONE_SENTENCE, OUTCOMES, WHO_CHOSE, WRITER_SET_UP } from "./words.js";
import { writtenEvidence, writtenText } from "./written.js";

const NEAREST = 3;

export function tokenSpan(token, index) {
  return h(
    "span",
    { class: token.pointed ? "token exact" : "token", data: { token: index }, style: { "--share": token.memory_share.toFixed(3) } },
    index ? token.text : token.text.trimStart(),
  );
}

// Draws the finished answer into `node`; `options.lowShare` is where doubt begins.
export function mountAnswer(node, reading, { lowShare, onDeleted, onAgain, onCorrect, onAnyway, onContinue, onEvidence }) {
  const { answer } = reading;
  const spans = answer.tokens.map(tokenSpan);
  const words = answer.tokens.some((token) => token.text.trim()); // a model may end before its first word
  const box = h(
    "div",
    {
      class: "answer-text",
      role: "group",
      tabindex: "0",
      "aria-label": reading.attended ? "Answer. Arrow keys move from word to word, Enter keeps one, Escape releases it." : "Answer",
    },
    words ? (answer.writer ? writtenText(answer) : spans) : h("span", { class: "soft" }, answer.text || stoppedEarly(answer)),
  );
  if (reading.attended) pointing(box, spans, reading);
  reading.onChange(() => paint(spans, reading));
  paint(spans, reading);
  replace(
    node,
    answer.found ? null : unsupported(answer),
    understood(answer, onCorrect),
    answer.settings.interrupted ? interruptedNote(onContinue) : null,
    words && (answer.outcome === "perhaps" || (answer.settings.anyway && answer.found)) ? perhapsNote() : null,
    answer.found || (words && !refusedBy(answer)) ? h("div", { class: answer.found ? "" : "unsupported" }, box) : null,
    answer.writer ? writtenEvidence(answer) : words && !reading.fromItself ? source(answer, reading) : null,
    (words || !answer.found) && answer.settings.survey && !answer.writer ? needsWriter(answer) : null,
    answer.found ? null : nearest(answer, { onAnyway: answer.settings.anyway ? null : onAnyway }),
    words ? earlierVersion(answer) : null,
    words ? otherSentences(answer) : null,
    words && !answer.writer ? warning(answer, lowShare) : null,
    words && !answer.writer ? whoChose(answer, reading) : null,
    words && reading.attended ? howItWasRead(answer) : null,
    (words || answer.writer) && answer.passages.length && !reading.fromItself
      ? button(reading.attended ? "What was read" : "Passages found", { class: "button small open-evidence", onclick: onEvidence }, "page")
      : null,
    actions(answer, { onDeleted, onAgain }),
  );
}

const needsWriter = ({ found }) =>
  h(
    "div",
    { class: "verdict survey", role: "note" },
    found ? ONE_SENTENCE : FOR_WRITERS,
    h("pre", { class: "set-up" }, WRITER_SET_UP.join("\n")),
  );

// How the question was read, where it was not as it was put: with what a follow-up refers to. It can be put right.
function understood({ settings, question }, onCorrect) {
  const { asked } = settings;
  if (!asked || asked.trim() === question.trim()) return null;
  return h(
    "div",
    { class: "soft understood" },
    `Understood as: ${asked} `,
    button("Change", {
      class: "button quiet small",
      onclick: async () => {
        const meant = await askText("What did you mean?", "Question", asked, { yes: "Ask" });
        if (meant) onCorrect(meant);
      },
    }),
  );
}

// A writer that found nothing says the words of the outcome itself.
const refusedBy = (answer) => Boolean(answer.writer) && answer.text.startsWith(OUTCOMES.not_found[0].slice(0, -1));

const stoppedEarly = (answer) => (answer.problem ? "Nothing was written." : "Stopped before the first word.");

// What an earlier version of the document says instead, with the name of its file: titles of versions may be the same.
function earlierVersion({ earlier_version: earlier }) {
  if (!earlier) return null;
  const place = [earlier.passage.source, pagesOf(earlier.passage)].filter(Boolean).join(", ");
  return h("section", { class: "others", "aria-label": "Earlier version" }, h("h3", {}, EARLIER_VERSION), sentence(earlier, place));
}

// The sentences that came next where one is quoted.
function otherSentences(answer) {
  const others = answer.other_sentences ?? []; // older answers have none
  if (!others.length) return null;
  return h(
    "section",
    { class: "others", "aria-label": "Other sentences" },
    h("h3", {}, "Other possible answers"),
    h(
      "ol",
      {},
      others.map((other) => h("li", {}, sentence(other, placeOf(other.passage)))),
    ),
  );
}

// A sentence that leads to its page.
const sentence = ({ passage, pointed }, place) =>
  h(
    "button",
    {
      type: "button",
      class: "plain",
      title: "Show on the page",
      onclick: () => openViewer({ passage, reading: null, quote: quoteOf(passage, pointed) }),
    },
    h(
      "span",
      { class: "other-text" },
      cutAtSpan(passage.text, passage.start_index, pointed).map(([part, inside]) => (inside ? h("span", { class: "exact" }, part) : part)),
    ),
    h("span", { class: "soft" }, place),
  );

const quoteOf = (passage, pointed) => ({
  document_id: passage.document_id,
  start: passage.start_index,
  end: passage.end_index,
  exact: pointed[0] < pointed[1] ? pointed : null,
});

// Document and page of the answer: of the quoted sentence, or of what was read most. Leads there.
function source(answer, reading) {
  const passage = answer.quotation?.passage ?? answer.passages[0];
  if (!passage) return null;
  return h(
    "button",
    { type: "button", class: "plain source", title: "Show on the page", onclick: () => openViewer({ passage, reading }) },
    icon("page"),
    h("span", { class: "source-place" }, placeOf(passage)),
    answer.quotation
      ? null
      : h("span", { class: "soft" }, reading.attended ? "read most" : answer.decided_by === "rows" ? "rows of it" : "found first"),
  );
}

// Where the documents do not seem to say: what comes nearest, in place.
function nearest(answer, { onAnyway }) {
  const shown = answer.near_misses.slice(0, NEAREST);
  if (!shown.length) return null;
  return h(
    "section",
    { class: "nearest", "aria-label": "Nearest passages" },
    h("h3", {}, shown.length === 1 ? "This passage comes nearest" : "These passages come nearest"),
    shown.map((passage) =>
      h(
        "article",
        { class: "near" },
        h("div", { class: "near-text" }, passage.text.replace(/\n\s*\n/g, "\n")),
        h(
          "button",
          { type: "button", class: "plain source", title: "Show on the page", onclick: () => openViewer({ passage, reading: null }) },
          icon("page"),
          h("span", { class: "source-place" }, placeOf(passage)),
        ),
      ),
    ),
    onAnyway ? button("Answer from these anyway", { class: "button", onclick: onAnyway }, "quote") : null,
  );
}

function pointing(box, spans, reading) {
  const indexOf = (event) => {
    const span = event.target.closest?.(".token");
    return span ? Number(span.dataset.token) : null;
  };
  box.addEventListener("pointerover", (event) => event.pointerType === "mouse" && reading.hoverToken(indexOf(event)));
  box.addEventListener("pointerleave", () => reading.hoverToken(null));
  box.addEventListener("click", (event) => {
    const index = indexOf(event);
    if (index !== null) reading.chooseToken(index);
  });
  box.addEventListener("keydown", (event) => {
    if (!spans.length) return;
    const at = reading.hover ?? reading.token;
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      const { words } = reading,
        now = words.findIndex((word) => word.includes(at));
      const [next] = words[at === null ? 0 : Math.min(words.length - 1, Math.max(0, now + step))];
      reading.hoverToken(next);
      announce(`${reading.wordAt(next).text}: ${percent(reading.shareOf(next))} on the documents`);
    } else if (event.key === "Enter" && at !== null) {
      event.preventDefault();
      reading.chooseToken(at);
    } else if (event.key === "Escape") {
      reading.clear();
    }
  });
  box.addEventListener("blur", () => reading.hoverToken(null));
}

function paint(spans, reading) {
  const uses = reading.block === null ? null : reading.tokenWeights(reading.block);
  const within = (at) => (at === null ? [] : reading.wordAt(at).indexes);
  const chosen = within(reading.token),
    pointed = within(reading.hover);
  const strongest = uses ? Math.max(1e-9, ...uses) : 1;
  spans.forEach((span, index) => {
    span.classList.toggle("chosen", chosen.includes(index));
    span.classList.toggle("pointed", pointed.includes(index));
    span.classList.toggle("uses", Boolean(uses?.[index]));
    span.style.setProperty("--use", uses ? opacity(uses[index], strongest).toFixed(3) : "0");
    if (uses?.[index]) span.title = `${weight(uses[index])} of this word's attention on this part`;
    else span.removeAttribute("title");
  });
}

function unsupported(answer) {
  const words = answer.tokens
    .map((token) => token.text)
    .join("")
    .trim();
  const more =
    !words || refusedBy(answer)
      ? ""
      : words === answer.text.trim()
        ? " The words below are not based on them."
        : " Below is what the model would have written; it is not based on them.";
  const waiting = h("span", {});
  sayWhatIsBeingRead(waiting);
  return h("div", { class: "verdict", role: "note" }, h("strong", {}, OUTCOMES.not_found[0]), ` ${OUTCOMES.not_found[1]}${more}`, waiting);
}

// What is not read to its end yet is no part of an answer: perhaps it says.
async function sayWhatIsBeingRead(node) {
  try {
    const { jobs } = await get("jobs", { active_only: true });
    if (!jobs.length) return;
    const what = jobs.length === 1 ? "One document is" : `${jobs.length} documents are`;
    replace(node, ` ${what} still being read and may say more: ask again later.`);
  } catch {
    // the verdict stands without it
  }
}

export const interruptedNote = (onContinue) =>
  h(
    "div",
    { class: "verdict interrupted", role: "note" },
    h("strong", {}, "Interrupted."),
    " This answer was stopped before its end. ",
    button("Continue", { class: "button small", onclick: onContinue }, "retry"),
  );

const perhapsNote = () => h("div", { class: "verdict", role: "note" }, h("strong", {}, OUTCOMES.perhaps[0]), ` ${OUTCOMES.perhaps[1]}`);

// A quotation is copied from the documents, whoever chose it.
function warning(answer, lowShare) {
  if (answer.decided_by !== "attention" || answer.memory_share >= lowShare || (answer.quote && answer.found)) return null;
  return h(
    "div",
    { class: "warning", role: "note" },
    "Little of this answer comes from the documents: it rests mostly on the model itself. Check the passages before you rely on it.",
  );
}

const whoChose = (answer, { fromItself }) =>
  h(
    "p",
    { class: "soft who-chose" },
    fromItself ? FROM_ITSELF : WHO_CHOSE[answer.decided_by],
    answer.decided_by === "attention" ? "" : ` ${timing(answer)}.`,
  );

function howItWasRead(answer) {
  const share = answer.memory_share;
  return h(
    "details",
    { class: "meter" },
    h("summary", { class: "soft" }, "How it was read"),
    h(
      "div",
      {
        class: "meter-bar",
        role: "meter",
        "aria-label": "Attention on the documents",
        "aria-valuemin": "0",
        "aria-valuemax": "100",
        "aria-valuenow": Math.round(100 * share),
      },
      h("div", { class: "meter-fill", style: { width: `${(100 * share).toFixed(1)}%` } }),
    ),
    h(
      "div",
      { class: "meter-text" },
      h("b", {}, percent(share)),
      " of the attention was on the documents, ",
      h("b", {}, percent(1 - share)),
      ` on the question and the answer itself. ${timing(answer)}.`,
    ),
  );
}

function timing({ tokens, timings }) {
  const { first_token_seconds: first, seconds } = timings;
  if (!tokens.length) return `It took ${duration(seconds)}`;
  const after = (time) => (time < 10 ? `${time.toFixed(2)} s` : duration(time));
  return `The first word came after ${after(first)}, the last after ${after(seconds)}`;
}

function actions(answer, { onDeleted, onAgain }) {
  const at = `answers/${answer.id}`;
  const link = (label, format) =>
    h("a", { class: "button quiet small", href: address(`${at}/export?format=${format}`), download: true }, label);
  const citations = (label, format, file) =>
    h("a", { class: "button quiet small", href: address(`${at}/citations?format=${format}`), download: file }, label);
  const exact = answer.tokens.some((token) => token.pointed);
  return h(
    "div",
    { class: "actions" },
    h(
      "span",
      { class: "soft grow" },
      answer.quote && answer.tokens.length ? `Word for word from the document${exact ? ", what answers in bold" : ""}` : "",
    ),
    button("Copy", { class: "button quiet small", onclick: () => copy(answer.text) }),
    answer.passages.length ? button("Copy source", { class: "button quiet small", onclick: () => copySource(at) }) : null,
    answer.passages.length ? [citations("BibTeX", "bibtex", "answer.bib"), citations("CSL-JSON", "csl-json", "answer.json")] : null,
    link("Export HTML", "html"),
    link("Export JSON", "json"),
    button("Ask again", { class: "button quiet small", onclick: onAgain }),
    button("Delete", {
      class: "button quiet small",
      onclick: async () => {
        if (!(await confirm("Delete this answer?", "The question, the answer and its record of attention go.", "Delete"))) return;
        try {
          await remove(at);
          onDeleted();
        } catch (error) {
          toast(error.message, "bad");
        }
      },
    }),
  );
}

// Where the answer comes from, with its page, as text.
async function copySource(at) {
  try {
    const response = await fetch(address(`${at}/citations`));
    if (!response.ok) throw new Error("The source could not be fetched.");
    await copy(await response.text());
  } catch (error) {
    toast(error.message, "bad");
  }
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied.");
  } catch {
    toast("This browser does not allow copying here.", "bad");
  }
}
