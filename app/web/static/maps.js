// Pictures of attention as SVG: layer by head, and block by word.

import { h, placeOf, replace, svg, weight } from "./dom.js";

const MAX_ROWS = 24;

// What the heads did: for a model with one memory layer the heads by passage, else layers by heads.
export const heatMap = (panel, reading) =>
  reading.answer.layers.length === 1 ? headsByPassage(panel, reading) : layersByHeads(panel, reading);

const ALIKE = 1.15; // below so many times the average, heads read alike

function headsByPassage(panel, { answer }) {
  const passages = answer.passages.slice(0, MAX_ROWS);
  const rows = Array.from({ length: answer.heads }, (_, head) => ({
    head,
    ratios: /** @type {number[]} */ ([]),
    masses: passages.map(({ block_ids }) => block_ids.reduce((sum, id) => sum + (answer.heat[id]?.[0]?.[head] || 0), 0)),
  }));
  const means = passages.map((_, at) => rows.reduce((sum, row) => sum + row.masses[at], 0) / Math.max(1, rows.length));
  for (const row of rows) row.ratios = row.masses.map((mass, at) => (means[at] > 0 ? mass / means[at] : 1));
  const most = (row) => row.ratios.indexOf(Math.max(...row.ratios));
  rows.sort((a, b) => b.ratios[most(b)] - a.ratios[most(a)]);
  const all = rows.flatMap((row) => row.ratios),
    low = Math.min(...all),
    high = Math.max(...all);
  const told = (row) =>
    `Head ${row.head + 1} looked at passage ${most(row) + 1} ${row.ratios[most(row)].toFixed(1)} times as much as the average head.`;
  const cell = 30,
    left = 58,
    head = 20,
    width = left + passages.length * cell,
    height = head + rows.length * cell;
  const picture = svg(
    "svg",
    {
      viewBox: `0 0 ${width} ${height}`,
      width,
      class: "heat",
      role: "img",
      "aria-label": `Attention by head and passage. ${rows.length && passages.length ? told(rows[0]) : ""}`,
    },
    passages.map((_, at) => svg("text", { x: left + (at + 0.5) * cell, y: 13, "text-anchor": "middle" }, at + 1)),
    rows.map((row, y) => [
      svg("text", { x: left - 8, y: head + (y + 0.5) * cell + 4, "text-anchor": "end" }, `head ${row.head + 1}`),
      row.ratios.map((ratio, at) =>
        svg(
          "rect",
          {
            x: left + at * cell + 1,
            y: head + y * cell + 1,
            width: cell - 2,
            height: cell - 2,
            rx: 3,
            class: "cell",
            style: { "--heat": ((ratio - low) / Math.max(1e-9, high - low)).toFixed(3) },
          },
          svg(
            "title",
            {},
            `Head ${row.head + 1}, passage ${at + 1}: ${weight(row.masses[at])}, ${ratio.toFixed(2)} times the average head`,
          ),
        ),
      ),
    ]),
  );
  const table = [
    h("div", { class: "scroll" }, picture),
    h(
      "div",
      { class: "legend" },
      h("span", {}, `${low.toFixed(1)} ×`),
      h("span", { class: "ramp" }),
      h("span", {}, `${high.toFixed(1)} × the average head`),
    ),
  ];
  return () =>
    replace(
      panel,
      !rows.length || !passages.length
        ? h("p", { class: "empty-note" }, "Nothing was read for this answer.")
        : high < ALIKE
          ? [
              h("p", {}, "All attention heads read the passages alike."),
              h("details", { class: "fine" }, h("summary", {}, "Show the heads"), table),
            ]
          : [
              h(
                "p",
                { class: "fine" },
                "From top to bottom the attention heads, those that differ most first; from left to right the passages.",
              ),
              h(
                "ul",
                { class: "fine told" },
                rows.slice(0, 3).map((row) => h("li", {}, told(row))),
              ),
              table,
            ],
    );
}

function layersByHeads(panel, reading) {
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
          ? "Which heads looked at the documents while the answer was written, all parts together."
          : "Which heads looked at this part.",
        ` ${says}`,
      ),
      h("div", { class: "scroll" }, picture),
      h("div", { class: "legend" }, h("span", {}, "0 %"), h("span", { class: "ramp" }), h("span", {}, weight(top))),
      reading.block === null ? h("p", { class: "fine" }, "Choose a marked part of a passage to see the heads that used it.") : null,
    );
  };
}

export function timeline(panel, reading) {
  const { answer } = reading;
  const blocks = reading.ranked.slice(0, MAX_ROWS);
  const { words } = reading;
  if (!blocks.length || !words.length) {
    replace(panel, h("p", { class: "empty-note" }, "Nothing was read for this answer."));
    return () => {};
  }
  const line = 22,
    left = 34,
    room = (panel.clientWidth || 480) - 52 - left;
  const cell = Math.max(9, Math.min(30, Math.floor(room / words.length)));
  const width = left + words.length * cell,
    height = blocks.length * line + 4;
  const all = new Map(blocks.map((id) => [id, reading.wordWeights(id)]));
  const top = Math.max(1e-9, ...[...all.values()].flat());
  const band = svg("rect", { class: "band", y: 0, width: cell, height, x: -100 });
  const rowBands = new Map();
  const rows = blocks.map((id, row) => {
    const masses = all.get(id);
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
              svg("title", {}, `${name}: ${weight(mass)} at “${reading.wordAt(words[at][0]).text}”`),
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
      "aria-label": `What was read while the answer was written: ${blocks.length} parts of the documents by ${words.length} words.`,
    },
    band,
    rows,
  );
  const indexAt = (event) => {
    const place = picture.getBoundingClientRect();
    const at = Math.floor((((event.clientX - place.left) / place.width) * width - left) / cell);
    return at >= 0 && at < words.length ? words[at][0] : null;
  };
  picture.addEventListener("pointermove", (event) => event.pointerType === "mouse" && reading.hoverToken(indexAt(event)));
  picture.addEventListener("pointerleave", () => reading.hoverToken(null));
  const caption = h("p", { class: "fine" });
  replace(
    panel,
    h(
      "p",
      { class: "fine" },
      "From left to right the words of the answer, from top to bottom the parts of the documents. A gap means that the part was out of reach for that word: others came first.",
    ),
    h("div", { class: "scroll" }, picture),
    caption,
  );
  return () => {
    const at = reading.shownToken === null ? null : words.findIndex((word) => word.includes(reading.shownToken));
    band.setAttribute("x", at === null ? -100 : left + at * cell);
    for (const [id, back] of rowBands) back.classList.toggle("chosen", reading.block === id);
    const before = words
      .slice(Math.max(0, (at ?? 0) - 4), at ?? 0)
      .flat()
      .map((one) => answer.tokens[one].text)
      .join("");
    replace(
      caption,
      at === null
        ? `${blocks.length} parts, ${words.length} words${reading.ranked.length > blocks.length ? ` (${reading.ranked.length - blocks.length} weaker parts are not drawn)` : ""}.`
        : [`Word ${at + 1}: …${before} `, h("b", {}, reading.wordAt(words[at][0]).text)],
    );
  };
}
