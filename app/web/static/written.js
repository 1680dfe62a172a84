// An answer that a writer worded: its citations lead to their pages, and every sentence shows what the documents say to it.

import { h, placeOf } from "./dom.js";
import { cutAtSpan } from "./marking.js";
import { openViewer } from "./viewer.js";
import { QUOTED_INSTEAD, SET_ASIDE } from "./words.js";

const VERDICTS = { supported: "Supported", partly: "Partly supported", not_found: "Not found in the documents" };

// The answer's text: sentences marked by verdict, numbers as buttons, figures and names of no cited passage underlined.
export function writtenText(answer) {
  const borders = new Set([0, answer.text.length]);
  const ranges = [
    ...answer.claims.map((claim) => [claim.start, claim.end]),
    ...answer.claims.flatMap((claim) => claim.unfounded),
    ...answer.citations.map((citation) => [citation.start, citation.end]),
  ];
  for (const border of ranges.flat()) borders.add(border);
  const cuts = [...borders].sort((one, other) => one - other);
  return h(
    "span",
    { class: "written" },
    cuts.slice(0, -1).map((start, at) => piece(answer, start, cuts[at + 1])),
  );
}

function piece(answer, start, end) {
  const within = (range) => range[0] <= start && end <= range[1];
  const text = answer.text.slice(start, end);
  const citation = answer.citations.find((one) => within([one.start, one.end]));
  if (citation) return citationButton(answer, citation, text);
  const claim = answer.claims.find((one) => within([one.start, one.end]));
  const unfounded = claim?.unfounded.some(within);
  const classes = [claim ? `claim ${claim.verdict}` : "", unfounded ? "unfounded" : ""].join(" ").trim();
  const title = unfounded ? "In no passage that is cited here" : claim ? VERDICTS[claim.verdict] : undefined;
  return classes ? h("span", { class: classes, title }, text) : text;
}

function citationButton(answer, citation, text) {
  const passage = answer.passages[citation.passage];
  return h(
    "button",
    {
      type: "button",
      class: "citation",
      title: placeOf(passage),
      "aria-label": `Citation ${citation.number}: ${placeOf(passage)}`,
      onclick: () => openViewer({ passage, reading: null, quote: quoteOf(passage, supporting(answer, citation)) }),
    },
    text,
  );
}

// The sentence of the cited passage that supports what it is cited for, if one does.
const supporting = (answer, { passage, start, end }) =>
  answer.claims.find((claim) => claim.passage === passage && claim.start <= start && end <= claim.end)?.sentence;

function quoteOf(passage, sentence) {
  const at = sentence ? passage.text.indexOf(sentence) : -1;
  if (at < 0) return null;
  const start = passage.start_index + at;
  return { document_id: passage.document_id, start, end: start + sentence.length, exact: null };
}

// What happened to the writer, who wrote, and the check of the sentences.
export function writtenEvidence(answer) {
  const { writer } = answer;
  const away = writer.leaves_machine ? " The passages were sent to another machine for it." : "";
  return h(
    "section",
    { class: "written-evidence", "aria-label": "Check of the answer" },
    answer.problem ? h("div", { class: "verdict", role: "note" }, answer.problem) : null,
    answer.set_aside ? setAside(answer) : null,
    nearestSentence(answer),
    answer.claims.length && !answer.set_aside ? check(answer) : null,
    (answer.text && !answer.set_aside) || away
      ? h("div", { class: "soft" }, `${answer.text && !answer.set_aside ? `Written by ${writer.name}.` : ""}${away}`.trim())
      : null,
  );
}

// Why the answer is not in the writer's words, with these.
function setAside(answer) {
  const why = [SET_ASIDE.replace("{writer}", answer.writer.name), answer.found ? QUOTED_INSTEAD : ""].join(" ").trim();
  return h("details", { class: "set-aside" }, h("summary", {}, why), h("blockquote", { class: "soft" }, answer.set_aside));
}

// The sentence that would have been the answer without a writer, unless the writer's rest on it.
function nearestSentence({ quotation, claims }) {
  if (!quotation) return null;
  const { passage, pointed } = quotation;
  if (claims.some(({ sentence }) => sentence && passage.text.includes(sentence))) return null;
  const exact = pointed[0] < pointed[1] ? pointed : null;
  return h(
    "button",
    {
      type: "button",
      class: "plain nearest-sentence",
      title: "Show on the page",
      onclick: () =>
        openViewer({
          passage,
          reading: null,
          quote: { document_id: passage.document_id, start: passage.start_index, end: passage.end_index, exact },
        }),
    },
    h("span", { class: "soft" }, "The sentence that comes nearest: "),
    h(
      "span",
      {},
      "“",
      cutAtSpan(passage.text, passage.start_index, pointed).map(([part, inside]) => (inside ? h("b", {}, part) : part)),
      "” ",
    ),
    h("span", { class: "soft" }, placeOf(passage)),
  );
}

function check(answer) {
  const good = answer.claims.filter((claim) => claim.verdict === "supported").length;
  return h(
    "details",
    { class: "claims", open: good < answer.claims.length },
    h("summary", {}, `${good} of ${answer.claims.length} sentences are supported by the documents`),
    h(
      "ol",
      {},
      answer.claims.map((claim) => h("li", { class: claim.verdict }, h("div", {}, claim.text), support(answer, claim))),
    ),
  );
}

function support(answer, claim) {
  const passage = claim.passage === null ? null : answer.passages[claim.passage];
  if (!passage) return h("div", { class: "soft" }, `${VERDICTS[claim.verdict]}.`);
  return h(
    "button",
    {
      type: "button",
      class: "plain",
      title: "Show on the page",
      onclick: () => openViewer({ passage, reading: null, quote: quoteOf(passage, claim.sentence) }),
    },
    h("span", { class: "soft" }, `${VERDICTS[claim.verdict]}: `),
    h("span", {}, `“${claim.sentence}” `),
    h("span", { class: "soft" }, placeOf(passage)),
  );
}
