// Figures and tables of a document: a list that leads to each on its page, the cells of tables, and their rows as CSV.

import { address, get } from "./api.js";
import { announce, button, h, iconButton, plural, replace, toast } from "./dom.js";

const SHOWN_ROWS = 200; // of one table; CSV has all

export const pictureAddress = (documentId, { picture }) => address(`documents/${encodeURIComponent(documentId)}/pictures/${picture}`);

// `onShow({ page, box, start })`: lead there. Nothing is fetched before the list is opened first.
export function exhibits(documentId, onShow) {
  const path = `documents/${encodeURIComponent(documentId)}`;
  const list = h("div", { class: "exhibits", tabindex: "0", role: "region", "aria-label": "Figures and tables", hidden: true });
  let fetched = false;

  async function fill() {
    fetched = true;
    replace(list, h("p", { class: "soft" }, "Loading…"));
    try {
      const { figures, tables } = await get(`${path}/exhibits`);
      const none = !figures.length && !tables.length;
      replace(
        list,
        none ? h("p", { class: "soft" }, "No figures or tables were found in this document.") : null,
        tables.length ? h("h2", {}, "Tables") : null,
        tables.map((table, at) => tableEntry(table, at + 1)),
        figures.length ? h("h2", {}, "Figures") : null,
        figures.map(figureEntry),
      );
    } catch (error) {
      fetched = false;
      replace(list, h("p", { class: "soft" }, error.message));
    }
  }

  const lead = (one, name) =>
    h(
      "button",
      { type: "button", class: "plain exhibit-name", title: "Show on the page", onclick: () => onShow(one) },
      h("span", {}, one.caption || name),
      h("span", { class: "soft" }, one.place),
    );

  const figureEntry = (figure) =>
    h(
      "div",
      { class: "exhibit" },
      lead(figure, "A picture without a caption"),
      figure.picture
        ? h("img", {
            class: "exhibit-picture",
            src: pictureAddress(documentId, figure),
            alt: "",
            loading: "lazy",
            onclick: () => onShow(figure),
          })
        : null,
    );

  function tableEntry(table, number) {
    const [head, ...rows] = table.rows;
    const cells = (row, tag) =>
      h(
        "tr",
        {},
        row.map((cell) => h(tag, {}, cell)),
      );
    const left = rows.length - SHOWN_ROWS;
    return h(
      "div",
      { class: "exhibit" },
      lead(table, `Table ${number}`),
      h(
        "details",
        {},
        h("summary", {}, plural(table.rows.length, "row"), ", ", plural(head.length, "column")),
        h(
          "div",
          { class: "exhibit-cells" },
          h(
            "table",
            {},
            h("thead", {}, cells(head, "th")),
            h(
              "tbody",
              {},
              rows.slice(0, SHOWN_ROWS).map((row) => cells(row, "td")),
            ),
          ),
          left > 0 ? h("p", { class: "soft" }, `${plural(left, "more row")} in the CSV.`) : null,
        ),
      ),
      button("Copy as CSV", { class: "button small", "aria-label": `Copy table ${number} as CSV`, onclick: () => copy(number) }, "copy"),
    );
  }

  async function copy(number) {
    try {
      const answer = await fetch(address(`${path}/tables/${number}.csv`), { credentials: "same-origin" });
      if (!answer.ok) throw new Error("The table could not be fetched.");
      await navigator.clipboard.writeText(await answer.text());
      toast("The table is copied as CSV.");
    } catch (error) {
      toast(error.message || "The browser did not allow copying.", "bad");
    }
  }

  const toggle = iconButton("Figures and tables", "table", {
    "aria-pressed": "false",
    onclick: () => {
      list.hidden = !list.hidden;
      toggle.setAttribute("aria-pressed", String(!list.hidden));
      if (!list.hidden && !fetched) fill();
      if (!list.hidden) announce("Figures and tables");
    },
  });
  return { toggle, list };
}
