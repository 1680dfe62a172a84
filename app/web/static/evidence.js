// What the model read for one answer: passages, heads, timeline, near misses. Everything follows the Reading.

import { post } from "./api.js";
import { button, h, iconButton, likely, nameOf, pagesOf, percent, placeOf, plural, replace, toast, weight } from "./dom.js";
import { heatMap, timeline } from "./maps.js";
import { cutAtBlocks, opacity, withQuote } from "./marking.js";
import { openViewer } from "./viewer.js";

const ABOVE = 30; // pixels of a passage above what is shown of it
const PANELS = [
  ["passages", "Passages"],
  ["timeline", "Word by word"],
  ["missed", "Near misses"],
  ["heads", "Details"],
];
const OF_SEARCH = ["passages", "missed"]; // where attention decided nothing, nothing of it is shown
let chosenPanel = "passages";

export function mountEvidence(node, reading) {
  const { writer } = reading.answer;
  const attention = reading.answer.decided_by === "attention" && !reading.fromItself;
  const panels = PANELS.filter(([name]) => attention || (writer ? ["passages"] : OF_SEARCH).includes(name));
  if (!panels.some(([name]) => name === chosenPanel)) chosenPanel = "passages";
  const focus = h("div", { class: "focus" });
  const panel = h("div", { class: "panel", role: "tabpanel", id: "evidence-panel", tabindex: "0" });
  const tabs = h("div", { class: "subtabs", role: "tablist", "aria-label": "Evidence" });
  const buttons = panels.map(([name, label]) =>
    h(
      "button",
      {
        type: "button",
        role: "tab",
        id: `evidence-${name}`,
        "aria-controls": "evidence-panel",
        data: { panel: name },
        onclick: () => show(name),
      },
      label,
      name === "missed" && reading.answer.near_misses.length ? h("span", { class: "count" }, reading.answer.near_misses.length) : null,
    ),
  );
  tabs.append(...buttons);
  tabs.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = panels.findIndex(([name]) => name === chosenPanel);
    show(panels[(at + step + panels.length) % panels.length][0]);
    buttons.find((one) => one.dataset.panel === chosenPanel).focus();
  });
  let update = () => {};

  function show(name) {
    chosenPanel = name;
    for (const one of buttons) {
      const chosen = one.dataset.panel === name;
      one.setAttribute("aria-selected", String(chosen));
      one.tabIndex = chosen ? 0 : -1;
    }
    panel.setAttribute("aria-labelledby", `evidence-${name}`);
    update = { passages, heads: heatMap, timeline, missed: nearMisses }[name](panel, reading);
    update();
  }

  reading.onChange(() => {
    drawFocus(focus, reading);
    update();
  });
  const close = iconButton("Close what was read", "close", {
    class: "icon-button sheet-close",
    onclick: () => node.classList.remove("open"),
  });
  const read = attention ? "What attention read" : "Passages found";
  const title = h("span", { class: "grow" }, writer ? `What ${writer.name} was given` : read);
  replace(node, h("h2", { class: "evidence-title row" }, title, close), focus, tabs, panel);
  drawFocus(focus, reading);
  show(chosenPanel);
}

// The line that says what is being looked at, with the two numbers of a chosen block.
function drawFocus(node, reading) {
  const { writer } = reading.answer;
  const { block } = reading;
  const token = reading.shownToken;
  const letGo = iconButton("Back to the whole answer", "close", { onclick: () => reading.clear() });
  if (block !== null) {
    replace(node, blockCard(reading, block, letGo));
  } else if (token !== null && reading.attended) {
    const parts = reading.weights().size;
    replace(
      node,
      h(
        "div",
        { class: "focus-line" },
        h(
          "span",
          {},
          "For the word ",
          h("q", {}, reading.wordAt(token).text),
          ": ",
          h("b", {}, percent(reading.shareOf(token))),
          ` of the attention on the documents, on ${plural(parts, "part")} of them`,
        ),
        reading.token === null ? null : letGo,
      ),
    );
  } else {
    replace(
      node,
      h(
        "div",
        { class: "focus-line soft" },
        !reading.attended
          ? writer
            ? "These passages were found and given to the writer. Each number in its answer leads to one of them."
            : reading.read
              ? "How sure Cairn is that a passage holds an answer, not whether it is true. “Leave it out” asks again as if the passage were not there; your documents stay as they are."
              : ""
          : "The whole answer. Point at a word to see what it was read from, or at a passage to see which words used it.",
      ),
    );
  }
}

function blockCard(reading, block, letGo) {
  const place = reading.places.get(block),
    effect = reading.effects.get(block);
  const strongest = reading
    .wordWeights(block)
    .map((mass, word) => [mass, reading.words[word][0]])
    .filter(([mass, index]) => mass > 0 && /[\p{L}\p{N}]/u.test(reading.wordAt(index).text)) // no brackets or full stops
    .sort((a, b) => b[0] - a[0])
    .slice(0, 5);
  return h(
    "div",
    { class: "block-card" },
    h("div", { class: "row" }, h("strong", { class: "grow" }, place ? placeOf(place.passage) : "This part"), letGo),
    h(
      "div",
      { class: "two-numbers" },
      h(
        "div",
        {},
        h("div", { class: "figure" }, reading.worth(reading.totals.get(block) || 0)),
        reading.measure.map((words, at) => h("div", { class: at ? "fine" : "soft" }, words)),
      ),
      reading.answer.decided_by === "attention" && !reading.fromItself
        ? h("div", { "aria-live": "polite" }, effect ? effectFigure(effect) : measureButton(reading, block))
        : null,
    ),
    strongest.length
      ? h(
          "div",
          { class: "fine" },
          "Used most for ",
          strongest.map(([mass, index], at) => [
            at ? ", " : "",
            h("button", { type: "button", class: "word", onclick: () => reading.chooseToken(index) }, reading.wordAt(index).text),
            ` ${weight(mass)}`,
          ]),
        )
      : null,
  );
}

function effectFigure(effect) {
  const factor = Math.exp(Math.abs(effect.delta));
  const shown = factor >= 1000 ? "over 1000" : factor >= 10 ? factor.toFixed(0) : factor.toFixed(2);
  const direction = effect.delta < 0 ? "less" : "more";
  return [
    h("div", { class: "effect" }, `Without this part the answer would have been ${howLikely(factor, direction)}.`),
    h(
      "details",
      { class: "fine" },
      h("summary", {}, "Details"),
      `${shown} times ${direction} likely: ${effect.delta > 0 ? "+" : ""}${effect.delta.toFixed(2)} nats over the whole answer.`,
    ),
  ];
}

function howLikely(factor, direction) {
  if (factor < 1.05) return "just as likely";
  if (factor < 2) return `slightly ${direction} likely`;
  return factor < 10 ? `${direction} likely` : `much ${direction} likely`;
}

function measureButton(reading, block) {
  const checking = reading.checking.has(block);
  return [
    button(
      checking ? "Reading again…" : "Measure effect",
      { class: "button small", disabled: checking, onclick: () => measure(reading, block, `effect/${block}`) },
      "scale",
    ),
    h("div", { class: "fine" }, "leaves this part out and weighs the same answer again"),
  ];
}

async function measure(reading, part, path) {
  try {
    await reading.check(part, () => post(`answers/${reading.answer.id}/${path}`));
  } catch (error) {
    toast(error.message, "bad");
  }
}

// Of a quotation: takes a passage away and has the sentence chosen again. { nodes, update }
function withoutIt(reading, number) {
  const part = `passage ${number}`,
    said = h("div", { class: "effect", "aria-live": "polite" });
  const ask = button(
    "Leave it out",
    {
      class: "button quiet small",
      title: "Asks again as if this passage were not there; your documents stay as they are",
      onclick: () => measure(reading, part, `without/${number}`),
    },
    "scale",
  );
  let shown = null; // its button keeps the keyboard while something else changes
  const update = () => {
    const effect = reading.checking.has(part) ? "Asking again without it…" : (reading.effects.get(part) ?? null);
    ask.disabled = reading.checking.has(part);
    if (effect !== shown) replace(said, typeof effect === "string" ? effect : missing(effect));
    shown = effect;
  };
  return { nodes: [ask, said], update };
}

function missing(effect) {
  if (!effect) return null;
  const { found, same, quotation, probability_with: before, probability_without: after } = effect;
  const sure = (rest) =>
    typeof before === "number" && typeof after === "number" ? ` Cairn is ${likely(before)} sure of this answer${rest}` : "";
  if (same)
    return `Without this passage the answer is the same: it does not rest on it.${sure(`, and ${likely(after)} without the passage.`)}`;
  if (!found)
    return `Without this passage there is no answer.${sure(`; its best guess without the passage is only ${likely(after)}, too little to give.`)}`;
  return [
    "Without this passage the answer is another one: ",
    h(
      "button",
      {
        type: "button",
        class: "plain",
        title: "Show on the page",
        onclick: () => openViewer({ passage: quotation.passage, reading: null }),
      },
      h("q", {}, quotation.passage.text),
      h("span", { class: "soft" }, ` (${placeOf(quotation.passage)}).`),
    ),
    sure(`, and ${likely(after)} of that one.`),
  ];
}

function passages(panel, reading) {
  const { answer } = reading;
  if (!answer.passages.length || reading.fromItself) {
    replace(panel, h("p", { class: "empty-note" }, "There is no passage for this answer."));
    return () => {};
  }
  const marks = [],
    cards = [],
    quoted = reading.quoted();
  const weighed = (!answer.writer && answer.decided_by !== "rows") || reading.attended; // what a server looked at, nobody knows
  const strongestPassage = Math.max(1e-9, ...answer.passages.map((one) => one.score));
  answer.passages.forEach((passage, index) => {
    const bar = h("div", { class: "score-fill" });
    const score = h("span", { class: "score-text" });
    const without = answer.quotation && !answer.writer ? withoutIt(reading, index) : null;
    const card = h(
      "article",
      { class: "passage", data: { passage: index } },
      h(
        "header",
        {},
        h("span", { class: "rank", "aria-hidden": "true" }, index + 1),
        h("div", { class: "grow" }, h("div", { class: "passage-title" }, nameOf(passage)), h("div", { class: "soft" }, pagesOf(passage))),
        weighed
          ? h(
              "div",
              { class: "score" },
              score,
              index
                ? null
                : h("div", { class: "fine" }, reading.attended ? "of the attention" : reading.read ? "probability" : "search score"),
              h("div", { class: "score-bar" }, bar),
            )
          : null,
      ),
      passageText(passage, reading, marks),
      h(
        "div",
        { class: "passage-foot" },
        button(
          "Show on the page",
          {
            class: "button quiet small",
            onclick: () => openViewer({ passage, reading }),
          },
          "page",
        ),
        without?.nodes,
      ),
    );
    cards.push({ card, passage, bar, score, without });
  });
  replace(
    panel,
    h(
      "div",
      { class: "passages" },
      cards.map((one) => one.card),
    ),
  );
  let scrolledFor;
  return () => {
    const weights = reading.weights(),
      strongest = reading.strongest(weights),
      whole = weights === reading.totals;
    for (const { mark, block } of marks) {
      const mass = weights.get(block) || 0;
      mark.style.setProperty("--mark", opacity(mass, strongest, whole && Boolean(quoted)).toFixed(3));
      mark.classList.toggle("chosen", reading.block === block);
      mark.setAttribute("aria-pressed", String(reading.block === block));
      if (weighed) mark.title = `${reading.measure[0]}: ${reading.worth(mass)}`;
    }
    for (const { card, passage, bar, score, without } of cards) {
      without?.update();
      const mass = whole ? passage.score : passage.block_ids.reduce((sum, id) => sum + (weights.get(id) || 0), 0);
      bar.style.width = `${Math.min(100, (100 * mass) / (whole ? strongestPassage : strongest)).toFixed(1)}%`;
      score.textContent = mass > 0 ? reading.worth(mass) : "–";
      score.title = reading.measure.join(": ");
      card.classList.toggle("dim", mass <= 0);
    }
    if (scrolledFor === reading.token || reading.block !== null) return;
    scrolledFor = reading.token;
    requestAnimationFrame(() => showStrongest(panel, marks, weights, whole));
  };
}

// Long passages are cut to a few lines: those around the quotation (of a long one the words that answer), or around the
// block that was read most.
function showStrongest(panel, marks, weights, whole) {
  for (const text of panel.querySelectorAll(".passage-text.clamped")) {
    const own = marks.filter(({ mark }) => text.contains(mark));
    const best = own.reduce((a, b) => ((weights.get(b.block) || 0) > (weights.get(a.block) || 0) ? b : a), own[0]);
    const shown = whole ? (quotationIn(text) ?? best?.mark) : best?.mark;
    if (!shown) continue;
    const to = shown.getBoundingClientRect().top - text.getBoundingClientRect().top + text.scrollTop - ABOVE;
    text.scrollTop = to;
    text.classList.toggle("top", text.scrollTop < 4);
  }
}

function quotationIn(text) {
  const quoted = text.querySelector(".quoted"),
    words = text.querySelector(".quoted .exact");
  if (!words) return quoted;
  const needed = words.getBoundingClientRect().bottom - quoted.getBoundingClientRect().top;
  return needed > text.clientHeight - 2 * ABOVE ? words : quoted;
}

function passageText(passage, reading, marks) {
  const pieces = cutAtBlocks(passage.text, passage.start_index, passage.blocks);
  const quoted = reading.quoted(),
    quote = quoted?.document_id === passage.document_id ? quoted : null;
  let at = passage.start_index;
  const text = h(
    "div",
    { class: "passage-text" },
    pieces.map((piece, index) => {
      const words = index || piece.text.trim() ? withQuote(piece.text, at, quote) : null; // no empty lines above
      at += piece.text.length;
      if (piece.block === null) return words;
      const choose = () => reading.chooseBlock(piece.block);
      const mark = h(
        "mark",
        {
          tabindex: "0",
          role: "button",
          data: { block: piece.block },
          onclick: choose,
          onkeydown: (event) => {
            if (event.key === "Enter" || event.key === " ") {
              event.preventDefault();
              choose();
            }
            if (event.key === "Escape") reading.clear();
          },
        },
        words,
      );
      marks.push({ mark, block: piece.block });
      return mark;
    }),
  );
  if (passage.text.length < 700) return text;
  text.classList.add("clamped", "top");
  const more = button("Show all of it", {
    class: "button quiet small",
    onclick: () => {
      more.lastChild.textContent = text.classList.toggle("clamped") ? "Show all of it" : "Show less";
    },
  });
  return [text, more];
}

function nearMisses(panel, reading) {
  const { answer } = reading;
  replace(
    panel,
    h("p", { class: "fine" }, "These ranked next in the search. The score is from the search."),
    answer.near_misses.length
      ? h(
          "div",
          { class: "passages" },
          answer.near_misses.map((passage, index) =>
            h(
              "article",
              { class: "passage missed" },
              h(
                "header",
                {},
                h("span", { class: "rank" }, `+${index + 1}`),
                h(
                  "div",
                  { class: "grow" },
                  h("div", { class: "passage-title" }, nameOf(passage)),
                  h("div", { class: "soft" }, pagesOf(passage)),
                ),
                h(
                  "div",
                  { class: "score" },
                  h("span", { class: "score-text" }, passage.score.toFixed(3)),
                  h("div", { class: "fine" }, gap(passage, answer.near_misses, index)),
                ),
              ),
              h("div", { class: "passage-text" }, passage.text),
              h(
                "div",
                { class: "passage-foot" },
                button(
                  "Show on the page",
                  {
                    class: "button quiet small",
                    onclick: () => openViewer({ passage, reading: null }),
                  },
                  "page",
                ),
              ),
            ),
          ),
        )
      : h("p", { class: "empty-note" }, "Nothing else came close."),
  );
  return () => {};
}

function gap(passage, all, index) {
  if (index === 0) return "closest";
  return `${(all[0].score - passage.score).toFixed(3)} behind the closest`;
}
