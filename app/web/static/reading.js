// One answer and what of it is being looked at: a token, a block, or the whole. Numbers only, no elements.

export class Reading extends EventTarget {
  constructor(answer) {
    super();
    this.answer = answer;
    this.token = null; // index, chosen by click
    this.block = null; // id, chosen by click
    this.hover = null; // index of the token under the pointer
    this.effects = new Map(); // block id -> result of the causal check
    this.places = new Map(); // block id -> { passage, block }
    for (const passage of answer.passages) {
      for (const block of passage.blocks) this.places.set(block.block_id, { passage, block });
    }
    this.totals = this.#totals();
    this.ranked = [...this.totals.keys()].sort((a, b) => this.totals.get(b) - this.totals.get(a));
  }

  #totals() {
    const totals = new Map();
    for (const [id, place] of this.places) totals.set(id, place.block.score);
    if (!totals.size) {
      const count = this.answer.tokens.length || 1;
      for (const token of this.answer.tokens) {
        for (const [id, mass] of token.blocks) totals.set(id, (totals.get(id) || 0) + mass / count);
      }
    }
    return totals;
  }

  // { document_id, start, end } of the words that the answer repeats, null if it quotes nothing.
  quoted() {
    const places = this.answer.tokens.map((token) => token.quoted_from).filter(Boolean);
    if (!places.length) return null;
    const own = places.filter(([id]) => id === places[0][0]);
    return { document_id: places[0][0], start: Math.min(...own.map((at) => at[1])), end: Math.max(...own.map((at) => at[2])) };
  }

  get shownToken() {
    return this.hover ?? this.token;
  }

  // Block id -> attention, of the shown token or of the whole answer.
  weights() {
    const token = this.shownToken;
    return token === null ? this.totals : new Map(this.answer.tokens[token].blocks);
  }

  strongest(weights = this.weights()) {
    return Math.max(1e-9, ...weights.values());
  }

  // For each token, the attention it gave to `block`.
  tokenWeights(block) {
    return this.answer.tokens.map((token) => token.blocks.find(([id]) => id === block)?.[1] || 0);
  }

  // [layer][head] for the chosen block, or summed over all blocks.
  heat() {
    const { answer, block } = this;
    if (block !== null && answer.heat[block]) return answer.heat[block];
    const sums = answer.layers.map(() => new Array(answer.heads).fill(0));
    for (const rows of Object.values(answer.heat)) {
      for (const [layer, row] of rows.entries()) for (const [head, mass] of row.entries()) sums[layer][head] += mass;
    }
    return sums;
  }

  rank(block) {
    return this.ranked.indexOf(block) + 1;
  }

  chooseToken(index) {
    this.token = this.token === index ? null : index;
    this.block = null;
    this.#changed();
  }

  chooseBlock(id) {
    this.block = this.block === id ? null : id;
    this.token = null;
    this.hover = null;
    this.#changed();
  }

  hoverToken(index) {
    if (this.hover === index) return;
    this.hover = index;
    this.#changed();
  }

  clear() {
    this.token = this.block = this.hover = null;
    this.#changed();
  }

  learnEffect(block, effect) {
    this.effects.set(block, effect);
    this.#changed();
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }

  onChange(listener) {
    this.addEventListener("change", listener);
  }
}

// Opacity of a mark: something visible for the weakest, calm for the strongest.
export const opacity = (mass, strongest) => (mass <= 0 ? 0 : 0.09 + 0.41 * Math.min(1, mass / strongest) ** 1.4);

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

// One piece of such a text that begins at `at`, cut where a quotation begins and ends: [[text, quoted]].
export function cutAtQuote(text, at, quote) {
  if (!quote) return [[text, false]];
  const from = Math.min(Math.max(quote.start - at, 0), text.length),
    to = Math.min(Math.max(quote.end - at, from), text.length);
  return [
    [text.slice(0, from), false],
    [text.slice(from, to), true],
    [text.slice(to), false],
  ].filter(([part]) => part);
}
