// An answer that a writer worded: its citations lead to their passages, and what the documents do not bear out is marked.

import { h, icon, placeOf } from "./dom.js";
import { openViewer } from "./viewer.js";

const VERDICTS = { partly: "The documents say only part of this.", not_found: "The documents do not say this." };

// The sentence that bears a claim out, where it stands in its passage.
function quoteOf(answer, claim) {
  const passage = answer.passages[claim?.passage];
  const at = passage && claim.sentence ? passage.text.indexOf(claim.sentence) : -1;
  if (at < 0) return undefined;
  const start = passage.start_index + at;
  return { document_id: passage.document_id, start, end: start + claim.sentence.length, exact: null };
}

function citation(answer, one) {
  const passage = answer.passages[one.passage];
  const claim = answer.claims.find((each) => each.passage === one.passage && each.start <= one.start && one.start <= each.end + 1);
  const place = placeOf(passage);
  return h(
    "button",
    {
      type: "button",
      class: "cite",
      title: place,
      "aria-label": `Source ${one.number}: ${place}`,
      onclick: () => openViewer({ passage, reading: null, quote: quoteOf(answer, claim) }),
    },
    one.number,
  );
}

// The text cut where citations, doubtful sentences and unfounded figures or names begin and end.
export function writtenText(answer) {
  const { text, citations, claims } = answer;
  const doubtful = claims.filter((claim) => VERDICTS[claim.verdict]);
  const unfounded = claims.flatMap((claim) => claim.unfounded);
  const spans = [...citations.map((one) => [one.start, one.end]), ...doubtful.map((one) => [one.start, one.end]), ...unfounded];
  const cuts = [...new Set([0, text.length, ...spans.flat()])].filter((at) => at <= text.length).sort((a, b) => a - b);
  return cuts.slice(0, -1).map((from, at) => {
    const to = cuts[at + 1];
    const within = ({ start, end }) => start <= from && to <= end;
    const cited = citations.find(within);
    if (cited) return citation(answer, cited);
    const claim = doubtful.find(within);
    const bare = unfounded.some(([start, end]) => within({ start, end }));
    if (!claim && !bare) return text.slice(from, to);
    const says = bare ? "No passage that is cited holds this." : VERDICTS[claim.verdict];
    return h("span", { class: `claim ${bare ? "unfounded" : claim.verdict}`, title: says }, text.slice(from, to));
  });
}

// What was cited, once each, and what the marks mean where there are any.
export function sources(answer) {
  const cited = new Map(answer.citations.map((one) => [one.number, answer.passages[one.passage]]));
  const doubtful = answer.claims.some((claim) => VERDICTS[claim.verdict] || claim.unfounded.length);
  return [
    h(
      "ul",
      { class: "sources", "aria-label": "Sources" },
      [...cited]
        .sort(([a], [b]) => a - b)
        .map(([number, passage]) =>
          h(
            "li",
            {},
            h(
              "button",
              { type: "button", class: "plain source", title: "Show on the page", onclick: () => openViewer({ passage, reading: null }) },
              icon("page"),
              h("span", { class: "source-place" }, `${number}. ${placeOf(passage)}`),
            ),
          ),
        ),
    ),
    doubtful
      ? h("p", { class: "fine" }, "Underlined with dots: the documents bear it out only in part, or not at all. Check it on the page.")
      : null,
  ];
}

export const writtenBy = ({ name, leaves_machine: leaves }) =>
  `Written by ${name}${leaves ? ", on another machine," : ""} from the passages that were found`;
