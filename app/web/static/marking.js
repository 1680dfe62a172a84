// Texts cut where something in them is marked: stored blocks, a quotation, the words that answer.

import { h } from "./dom.js";

// Opacity of a mark: something visible for the weakest, calm for the strongest; all of them fainter beside a quotation.
export const opacity = (mass, strongest, beside = false) =>
  mass <= 0 ? 0 : (0.09 + 0.41 * Math.min(1, mass / strongest) ** 1.4) * (beside ? 0.4 : 1);

// Text from `start` on, cut at blocks: [{ text, block }]. What overlaps is clipped to the earlier block.
export function cutAtBlocks(text, start, blocks) {
  const pieces = [];
  let at = start;
  const end = start + text.length;
  const slice = (from, to) => text.slice(from - start, to - start);
  for (const block of [...blocks].sort((a, b) => a.start - b.start)) {
    const from = Math.max(block.start, at),
      to = Math.min(block.end, end);
    if (from >= to) continue;
    if (from > at) pieces.push({ text: slice(at, from), block: null });
    const inside = slice(from, to),
      blank = inside.length - inside.trimStart().length;
    if (blank) pieces.push({ text: inside.slice(0, blank), block: null }); // a mark begins with its first letter
    if (blank < inside.length) pieces.push({ text: inside.slice(blank), block: block.block_id });
    at = to;
  }
  if (at < end) pieces.push({ text: slice(at, end), block: null });
  return pieces;
}

// The same pieces with the nodes of `figures` ([{ start, node }]) between them, each before the text at its start.
export function withFigures(pieces, figures, start) {
  const waiting = [...figures].sort((a, b) => a.start - b.start),
    shown = [];
  let at = start;
  for (const { text, block } of pieces) {
    let from = 0;
    while (waiting.length && waiting[0].start < at + text.length) {
      const to = Math.max(from, waiting[0].start - at);
      if (to > from) shown.push({ text: text.slice(from, to), block });
      from = to;
      shown.push(waiting.shift().node);
    }
    shown.push({ text: text.slice(from), block });
    at += text.length;
  }
  return [...shown, ...waiting.map((one) => one.node)];
}

// One piece of such a text that begins at `at`, cut where a span begins and ends: [[text, inside]].
export function cutAtSpan(text, at, [start, end]) {
  const from = Math.min(Math.max(start - at, 0), text.length),
    to = Math.min(Math.max(end - at, from), text.length);
  return [
    [text.slice(0, from), false],
    [text.slice(from, to), true],
    [text.slice(to), false],
  ].filter(([part]) => part);
}

// The same piece as nodes: the quoted sentence set apart, and in it the words that answer.
export function withQuote(text, at, quote) {
  if (!quote) return [text];
  let begin = at;
  return cutAtSpan(text, at, [quote.start, quote.end]).map(([part, quoted]) => {
    const from = begin;
    begin += part.length;
    if (!quoted) return part;
    const words = cutAtSpan(part, from, quote.exact ?? [0, 0]);
    return h(
      "span",
      { class: "quoted" },
      words.map(([word, exact]) => (exact ? h("span", { class: "exact" }, word) : word)),
    );
  });
}
