// Pictures of attention as SVG: layer by head, and block by word.

import { h, placeOf, replace, svg, weight } from "./dom.js";

const MAX_ROWS = 24;

export function heatMap(panel, reading) {
  return () => {
    const { answer } = reading;
    const rows = reading.heat();
    const top = Math.max(1e-9, ...rows.flat());
    const cell = Math.max(12, Math.min(30, Math.floor(430 / Math.max(1, answer.heads))));
    const left = 58,
      head = 20,
      width = left + answer.heads * cell,
      height = head + rows.length * cell;
    let best = [0, 0];
    for (const [layer, row] of rows.entries()) {
      for (const [at, mass] of row.entries()) if (mass > rows[best[0]][best[1]]) best = [layer, at];
    }
    const says =
      rows.length && answer.heads
        ? `Strongest: layer ${answer.layers[best[0]] + 1}, head ${best[1] + 1}, ${weight(rows[best[0]][best[1]])}.`
        : "No attention was recorded.";
    const picture = svg(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, width, class: "heat", role: "img", "aria-label": `Attention by layer and head. ${says}` },
      answer.heads <= 40
        ? Array.from({ length: answer.heads }, (_, at) =>
            svg("text", { x: left + (at + 0.5) * cell, y: 13, "text-anchor": "middle" }, at + 1),
          )
        : null,
      rows.map((row, layer) => [
        svg("text", { x: left - 8, y: head + (layer + 0.5) * cell + 4, "text-anchor": "end" }, `layer ${answer.layers[layer] + 1}`),
        row.map((mass, at) =>
          svg(
            "rect",
            {
              x: left + at * cell + 1,
              y: head + layer * cell + 1,
              width: cell - 2,
              height: cell - 2,
              rx: 3,
              class: "cell",
              style: { "--heat": (mass / top).toFixed(3) },
            },
            svg("title", {}, `Layer ${answer.layers[layer] + 1}, head ${at + 1}: ${weight(mass)}`),
          ),
        ),
      ]),
    );
    replace(
      panel,
      h(
        "p",
        { class: "fine" },
        reading.block === null
          ? "Which heads looked at the documents while the answer was written, all blocks together."
          : `Which heads looked at block ${reading.rank(reading.block)}.`,
        ` ${says}`,
      ),
      h("div", { class: "scroll" }, picture),
      h("div", { class: "legend" }, h("span", {}, "0 %"), h("span", { class: "ramp" }), h("span", {}, weight(top))),
      reading.block === null ? h("p", { class: "fine" }, "Choose a block in a passage to see the heads that used it.") : null,
    );
  };
}

export function timeline(panel, reading) {
  const { answer } = reading;
  const blocks = reading.ranked.slice(0, MAX_ROWS);
  const tokens = answer.tokens;
  if (!blocks.length || !tokens.length) {
    replace(panel, h("p", { class: "empty-note" }, "Nothing was read for this answer."));
    return () => {};
  }
  const line = 22,
    left = 34,
    room = (panel.clientWidth || 480) - 52 - left;
  const cell = Math.max(9, Math.min(30, Math.floor(room / tokens.length)));
  const width = left + tokens.length * cell,
    height = blocks.length * line + 4;
  const top = Math.max(1e-9, ...tokens.flatMap((token) => token.blocks.map(([, mass]) => mass)));
  const band = svg("rect", { class: "band", y: 0, width: cell, height, x: -100 });
  const rowBands = new Map();
  const rows = blocks.map((id, row) => {
    const masses = reading.tokenWeights(id);
    const back = svg("rect", { class: "row-band", x: 0, y: row * line + 1, width, height: line - 2, rx: 4 });
    rowBands.set(id, back);
    const place = reading.places.get(id);
    const name = place ? placeOf(place.passage) : "";
    return svg(
      "g",
      { class: "row", onclick: () => reading.chooseBlock(id) },
      back,
      svg("text", { x: left - 9, y: row * line + 15, "text-anchor": "end" }, row + 1),
      masses.map((mass, at) =>
        mass > 0
          ? svg(
              "rect",
              {
                x: left + at * cell + 1,
                y: row * line + 3,
                width: cell - 2,
                height: line - 6,
                rx: 2.5,
                class: "cell",
                style: { "--heat": Math.max(0.1, mass / top).toFixed(3) },
              },
              svg("title", {}, `Block ${row + 1}, ${name}: ${weight(mass)} at “${tokens[at].text.trim()}”`),
            )
          : null,
      ),
    );
  });
  const picture = svg(
    "svg",
    {
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      class: "timeline",
      role: "img",
      "aria-label": `Blocks read while the answer was written, ${blocks.length} blocks by ${tokens.length} words.`,
    },
    band,
    rows,
  );
  const indexAt = (event) => {
    const place = picture.getBoundingClientRect();
    const at = Math.floor((((event.clientX - place.left) / place.width) * width - left) / cell);
    return at >= 0 && at < tokens.length ? at : null;
  };
  picture.addEventListener("pointermove", (event) => event.pointerType === "mouse" && reading.hoverToken(indexAt(event)));
  picture.addEventListener("pointerleave", () => reading.hoverToken(null));
  const caption = h("p", { class: "fine" });
  replace(
    panel,
    h(
      "p",
      { class: "fine" },
      "From left to right the words of the answer, from top to bottom the blocks. A gap means that the block was out of reach for that word: others scored higher.",
    ),
    h("div", { class: "scroll" }, picture),
    caption,
  );
  return () => {
    const at = reading.shownToken;
    band.setAttribute("x", at === null ? -100 : left + at * cell);
    for (const [id, back] of rowBands) back.classList.toggle("chosen", reading.block === id);
    const before = tokens
      .slice(Math.max(0, (at ?? 0) - 4), at ?? 0)
      .map((one) => one.text)
      .join("");
    replace(
      caption,
      at === null
        ? `${blocks.length} blocks, ${tokens.length} words${reading.ranked.length > blocks.length ? ` (${reading.ranked.length - blocks.length} weaker blocks are not drawn)` : ""}.`
        : [`Word ${at + 1}: …${before}`, h("b", {}, tokens[at].text)],
    );
  };
}
