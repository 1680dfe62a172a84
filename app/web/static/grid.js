// A page of a sheet as the grid that it is, with the row that was quoted or found.

import { h, plural, replace } from "./dom.js";

const SHOWN_ROWS = 200; // around the marked one

const squeezed = (text) => text.replace(/\s+/g, " ").trim();

// The row whose cells a text says most of: { at, cells: the columns that it says }; null where it says none whole.
function rowOf(rows, text) {
  const said = squeezed(text);
  let best = null;
  for (const [at, row] of rows.entries()) {
    const cells = row.map((cell) => squeezed(cell) !== "" && said.includes(squeezed(cell)));
    const whole = row.every((cell, column) => cells[column] || squeezed(cell) === "");
    const length = row.reduce((sum, cell, column) => sum + (cells[column] ? squeezed(cell).length : 0), 0);
    if (whole && length > (best?.length ?? 0)) best = { at, length };
  }
  return best?.at ?? null;
}

// Fills `node` with the tables of a page; false where there are none. `text`: what is to be marked, or "".
export function drawGrid(node, tables, page, text) {
  const first = Math.max(0, ...tables.map((one) => one.page).filter((one) => one <= page));
  const here = tables.filter((one) => one.page === first);
  replace(
    node,
    here.map(({ rows: [head, ...rows] }) => {
      const marked = text ? rowOf(rows, text) : null,
        from = Math.max(0, (marked ?? 0) - SHOWN_ROWS / 2);
      const cells = (row, tag) => row.map((cell) => h(tag, {}, cell));
      return h(
        "div",
        { class: "exhibit-cells" },
        from ? h("p", { class: "soft" }, `${plural(from, "row")} above.`) : null,
        h(
          "table",
          {},
          h("thead", {}, h("tr", {}, cells(head, "th"))),
          h(
            "tbody",
            {},
            rows
              .slice(from, from + SHOWN_ROWS)
              .map((row, at) => h("tr", { class: at + from === marked ? "quoted" : undefined }, cells(row, "td"))),
          ),
        ),
        rows.length > from + SHOWN_ROWS ? h("p", { class: "soft" }, `${plural(rows.length - from - SHOWN_ROWS, "row")} below.`) : null,
      );
    }),
  );
  requestAnimationFrame(() => node.querySelector("tr.quoted")?.scrollIntoView({ block: "center" }));
  return here.length > 0;
}
