// One answer and what of it is being looked at: a token, a block, or the whole. Numbers only, no elements.

import { likely, weight } from "./dom.js";

export class Reading extends EventTarget {
  constructor(answer) {
    super();
    this.answer = answer;
    this.token = null; // index, chosen by click
    this.block = null; // id, chosen by click
    this.hover = null; // index of the token under the pointer
    this.effects = new Map(); // block id, or "passage 0": result of the causal check
    this.checking = new Set(); // of those, what is being checked
    this.places = new Map(); // block id -> { passage, block }
    for (const passage of answer.passages) {
      for (const block of passage.blocks) this.places.set(block.block_id, { passage, block });
    }
    this.words = wordsOf(answer.tokens); // [[index, ...], ...]
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

  // { document_id, start, end, exact } of the sentence that the answer repeats (`exact`: [start, end] of the words in it that
  // answer, or null); null if it quotes nothing.
  quoted() {
    const { quotation } = this.answer;
    if (quotation) {
      const { passage, pointed } = quotation;
      const exact = pointed[0] < pointed[1] ? pointed : null;
      return { document_id: passage.document_id, start: passage.start_index, end: passage.end_index, exact };
    }
    const places = this.answer.tokens.map((token) => token.quoted_from).filter(Boolean);
    if (!places.length) return null;
    const own = places.filter(([id]) => id === places[0][0]);
    const start = Math.min(...own.map((at) => at[1])),
      end = Math.max(...own.map((at) => at[2]));
    return { document_id: places[0][0], start, end, exact: null };
  }

  get shownToken() {
    return this.hover ?? this.token;
  }

  // The tokens of the word that a token belongs to, and how it reads.
  wordAt(index) {
    const indexes = this.words.find((word) => word.includes(index)) ?? [index];
    const text = indexes.map((at) => this.answer.tokens[at].text).join("");
    return { indexes, text: text.trim() || "␣" };
  }

  // Mean over the tokens of a word.
  #ofWord(indexes, value) {
    return indexes.reduce((sum, at) => sum + value(this.answer.tokens[at]), 0) / indexes.length;
  }

  shareOf(index) {
    return this.#ofWord(this.wordAt(index).indexes, (token) => token.memory_share);
  }

  // Whether passages have shares of attention: that of the model that answered, or of a writer that tells.
  get attended() {
    const { writer, memory_share } = this.answer;
    return this.answer.decided_by === "attention" ? !this.fromItself : Boolean(writer) && memory_share > 0;
  }

  // Whether what attention read made no difference to the answer: then nothing of it is shown.
  get fromItself() {
    return this.answer.decided_by === "attention" && this.answer.check?.decided === false;
  }

  // Whether a reader says of every passage how likely an answer stands in it.
  get read() {
    return this.answer.decided_by === "reader" && typeof this.answer.probability === "number"; // older answers have search scores
  }

  // What a passage or a part of it is worth, for people, and what that is.
  worth(value) {
    return this.attended ? weight(value) : this.read ? likely(value) : value.toFixed(3);
  }

  get measure() {
    if (this.attended) return ["Attention", "how much it was read"];
    return this.read ? ["Probability", "how sure Cairn is that an answer stands here"] : ["Search score", "how well it fits the question"];
  }

  // Block id -> attention, of the word shown or of the whole answer; where attention decided nothing, search scores.
  weights() {
    if (this.shownToken === null || !this.attended) return this.totals;
    const { indexes } = this.wordAt(this.shownToken);
    const ids = new Set(indexes.flatMap((at) => this.answer.tokens[at].blocks.map(([id]) => id)));
    return new Map([...ids].map((id) => [id, this.#ofWord(indexes, (token) => token.blocks.find(([one]) => one === id)?.[1] || 0)]));
  }

  strongest(weights = this.weights()) {
    return Math.max(1e-9, ...weights.values());
  }

  // For each token, the attention that its word gave to `block`.
  tokenWeights(block) {
    const masses = new Array(this.answer.tokens.length).fill(0);
    for (const indexes of this.words) {
      const mass = this.#ofWord(indexes, (token) => token.blocks.find(([id]) => id === block)?.[1] || 0);
      for (const at of indexes) masses[at] = mass;
    }
    return masses;
  }

  // The same by words.
  wordWeights(block) {
    const masses = this.tokenWeights(block);
    return this.words.map(([first]) => masses[first]);
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
    const again = this.token !== null && this.wordAt(this.token).indexes.includes(index);
    this.token = again ? null : index;
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

  // The causal check of `part`, once at a time; `ask` gives its result. Raises what `ask` raises.
  async check(part, ask) {
    this.checking.add(part);
    this.#changed();
    try {
      this.effects.set(part, await ask());
    } finally {
      this.checking.delete(part);
      this.#changed();
    }
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }

  onChange(listener) {
    this.addEventListener("change", listener);
  }
}

// Tokens by words: one begins where white space or punctuation stands before it.
function wordsOf(tokens) {
  const words = [];
  for (const [index, { text }] of tokens.entries()) {
    const joins = words.length && /^[\p{L}\p{N}'’-]/u.test(text) && /[\p{L}\p{N}'’-]$/u.test(tokens[index - 1].text);
    if (joins) words.at(-1).push(index);
    else words.push([index]);
  }
  return words;
}
