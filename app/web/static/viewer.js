// A page as picture and as text, with the blocks that were read drawn on both. Boxes come from storage as they are.

import { address, get } from "./api.js";
import { h, icon, iconButton, nameOf, openDialog, replace, weight } from "./dom.js";
import { exhibits, pictureAddress } from "./exhibits.js";
import { drawGrid } from "./grid.js";
import { CELLS, DRAWN } from "./kinds.js";
import { cutAtBlocks, opacity, withFigures, withQuote } from "./marking.js";
import { pageRead, placesRead, placeWalk, thumbnails } from "./walking.js";

const WIDTHS = [60, 80, 100, 140, 190]; // zoom, percent of the pane

const targets = []; // of the viewers that were opened, by their number in the browser's history
let waiting = null; // while the browser goes back for a viewer that was closed: what is to be done then
window.addEventListener("popstate", (event) => {
  if (waiting) {
    event.stopImmediatePropagation(); // nothing else is to be shown
    const actions = waiting;
    waiting = null;
    for (const action of actions) action();
    return;
  }
  const { state } = event;
  if (!state?.viewer || document.querySelector("dialog.viewer")) return;
  const target = targets[state.viewer - 1];
  if (target) openViewer({ ...target, again: true });
  else leave(); // of before a reload
});
if (history.state?.viewer) leave(); // the page was loaded anew with a viewer open

function leave() {
  waiting ??= [];
  history.back();
}

// The browser takes a moment to go back: what it is to show next waits for that.
export function onceBack(action) {
  if (waiting) waiting.push(action);
  else action();
}

// `target`: { passage, reading, quote } from an answer, or { document } from the library. What is quoted has its own mark.
export const openViewer = (target) => onceBack(() => open(target));

function open(target) {
  const { passage, reading } = target;
  const quote = quoteIn(target);
  const documentId = passage ? passage.document_id : target.document.id;
  const title = nameOf(passage || target.document);
  const count = passage ? passage.total_pages : target.document.pages;
  const own = new Map((passage?.blocks || []).map((one) => [one.block_id, one.score]));
  let labels = [], // printed numbers of all pages
    asked = null;
  // Kind and printed numbers, asked for with the first page.
  const described = () => {
    asked ??= get(`documents/${encodeURIComponent(documentId)}`).catch((error) => {
      asked = null;
      throw error;
    });
    return asked;
  };
  const boxesOf = ({ start, end }) => get(`documents/${encodeURIComponent(documentId)}/boxes`, { start, end });
  let quoteBoxes = null,
    turned = false; // to another page than the first, which is where the quoted words are believed to be
  let page = passage ? firstPage(passage, quote, reading) : 1,
    zoom = 2,
    sequence = 0;

  const image = h("img", { class: "page-image", alt: "" });
  const layer = h("div", { class: "boxes", "aria-hidden": "true" });
  const sheet = h("div", { class: "sheet" }, image, layer);
  const grid = h("div", { class: "grid" });
  const text = h("div", { class: "page-text", tabindex: "0", role: "region", "aria-label": "Text of the page" });
  const pageBox = h("input", {
    class: "input page-box",
    inputmode: "numeric",
    "aria-label": "Page",
    title: "A printed page number, or the page counted from 1",
    onchange: async () => {
      const typed = pageBox.value.trim().toLowerCase();
      pageBox.value = boxed;
      await described().catch(() => null); // the page says what is wrong
      const printed = labels.findIndex((label) => label.toLowerCase() === typed) + 1;
      const to = printed || Number.parseInt(typed, 10);
      if (to >= 1 && (!count || to <= count)) goTo(to);
    },
    onblur: () => {
      pageBox.value = boxed;
    },
  });
  let boxed = ""; // what the page box was last given: while it holds anything else, a person types in it
  const position = h("span", { class: "position", "aria-live": "polite" });
  const places = placesRead(passage, reading);
  let place = null; // of the passages that were read, the one gone to
  const walk = placeWalk(places, passage?.start_index, (to) => {
    place = to;
    found = null;
    goTo(to.page);
  });
  const small = thumbnails(documentId, count ?? 0, new Set(places.map((one) => one.page)), (to) => goTo(to));
  const finder = findIn(documentId, (hit) => {
    found = hit;
    pointed = null;
    goTo(hit.page);
  });
  let found = null; // { start, end } of the words that were looked for
  let pointed = null; // the box of a figure or table that was chosen
  let pictures = null, // of figures, where pages are not drawn: fetched with the first page
    tables = [];
  const shownExhibits = exhibits(documentId, ({ page: to, box, start }) => {
    found = null;
    pointed = box ?? (Number.isInteger(start) ? { page: to, start } : null);
    goTo(to);
  });
  const back = iconButton("Previous page", "back", { onclick: () => turn(-1) });
  const next = iconButton("Next page", "next", { onclick: () => turn(1) });
  const dialog = h(
    "dialog",
    { class: "viewer", "aria-label": `${title}, pages` },
    h(
      "header",
      {},
      h("div", { class: "grow viewer-title" }, title),
      walk,
      finder,
      count === 1 ? null : h("div", { class: "row" }, small.button, back, pageBox, position, next),
      h(
        "div",
        { class: "row zoom" },
        iconButton("Smaller", "minus", { onclick: () => scale(-1) }),
        iconButton("Larger", "plus", { onclick: () => scale(1) }),
        iconButton("As wide as there is room", "width", { onclick: () => scale(WIDTHS.indexOf(100) - zoom) }),
      ),
      shownExhibits.toggle,
      h(
        "a",
        {
          class: "icon-button",
          href: address(`documents/${encodeURIComponent(documentId)}/original`),
          download: true,
          title: "The original file",
          "aria-label": "The original file",
        },
        icon("down"),
      ),
      iconButton("Close", "close", { onclick: () => dialog.close(), autofocus: true }),
    ),
    h(
      "div",
      { class: "viewer-body" },
      small.strip,
      h("div", { class: "sheet-pane", tabindex: "0", role: "region", "aria-label": "Picture of the page" }, sheet, grid),
      text,
      shownExhibits.list,
    ),
  );
  // Back closes the page, as it would on a phone; closing it any other way goes back, too. Forward opens it again.
  if (!target.again) {
    targets.push(target);
    history.pushState({ viewer: targets.length }, "");
  }
  const closed = () => dialog.close();
  window.addEventListener("popstate", closed);
  dialog.addEventListener("keydown", (event) => {
    if (event.target.tagName === "INPUT") return;
    if (event.key === "PageDown" || event.key === "ArrowRight") turn(1);
    else if (event.key === "PageUp" || event.key === "ArrowLeft") turn(-1);
    else return;
    event.preventDefault();
  });

  const weights = () => (reading ? reading.weights() : own);

  let begun = false;
  function begin() {
    if (!begun && count > 1) small.begin();
    begun = true;
    small.update(page);
  }

  function turn(step) {
    const to = page + step;
    if (to < 1 || (count && to > count)) return;
    goTo(to);
  }

  function goTo(to) {
    turned = true;
    page = to;
    show();
  }

  function scale(step) {
    zoom = Math.min(WIDTHS.length - 1, Math.max(0, zoom + step));
    sheet.style.width = `${WIDTHS[zoom]}%`;
  }

  // "Page 6 of 40"; with a printed number of its own "Page iv (6 of 40)"; "Slide 4 · 4 of 9".
  function tellPage(label) {
    const counted = count ? `${page} of ${count}` : String(page);
    if (label.includes(" ")) replace(position, `${label} · ${counted}`);
    else replace(position, label && label !== String(page) ? `Page ${label} (${counted})` : `Page ${counted}`);
    const typing = pageBox.value !== boxed;
    boxed = String(label.includes(" ") ? page : label || page);
    if (!typing) pageBox.value = boxed;
  }

  async function show() {
    const mine = ++sequence;
    tellPage(labels[page - 1] ?? "");
    back.disabled = page === 1;
    next.disabled = Boolean(count) && page >= count;
    const path = `documents/${encodeURIComponent(documentId)}/pages/${page}`;
    image.alt = `Page ${page} of ${title}`;
    sheet.classList.remove("failed");
    sheet.classList.add("loading");
    image.onload = () => sheet.classList.remove("loading");
    image.onerror = () => sheet.classList.add("failed");
    replace(layer);
    replace(text, h("p", { class: "soft" }, "Loading…"));
    try {
      const { kind, page_labels } = await described();
      labels = page_labels;
      small.name(labels);
      if (mine !== sequence) return;
      const drawn = DRAWN.has(kind);
      dialog.classList.toggle("text-only", !drawn);
      if (drawn) begin();
      if (drawn) image.src = address(`${path}.png?width_px=1200`);
      if (!pictures) ({ figures: pictures, tables } = drawn ? { figures: [], tables } : await exhibitsOf(documentId));
      const shown = await get(path);
      if (mine !== sequence) return;
      tellPage(shown.label);
      draw(shown, kind);
    } catch (error) {
      if (mine === sequence) replace(text, h("p", { class: "soft" }, error.message));
    }
  }

  function draw(shown, kind) {
    const now = weights(),
      strongest = Math.max(1e-9, ...now.values());
    const read = shown.blocks.filter((block) => now.get(block.block_id) > 0);
    const marks = new Map();
    const light = (id, on) => {
      for (const one of marks.get(id) || []) one.classList.toggle("lit", on);
    };
    const attach = (node, id) => {
      if (!marks.has(id)) marks.set(id, []);
      marks.get(id).push(node);
      node.addEventListener("pointerenter", () => light(id, true));
      node.addEventListener("pointerleave", () => light(id, false));
      if (reading) node.title = reading.attended ? `${weight(now.get(id))} of the attention` : `search score ${reading.worth(now.get(id))}`;
      if (reading?.block === id) node.classList.add("chosen");
      return node;
    };
    replace(
      layer,
      read.flatMap((block) =>
        block.boxes
          .filter((box) => box.page === page)
          .map((box) =>
            attach(
              h("div", {
                class: "box",
                data: { block: block.block_id },
                style: {
                  ...placed(box),
                  "--mark": opacity(now.get(block.block_id), strongest, Boolean(quote)).toFixed(3),
                },
              }),
              block.block_id,
            ),
          ),
      ),
    );
    text.classList.toggle("code", /^lines? \d/.test(shown.label)); // of a program
    let at = shown.start;
    const words = found ?? quote;
    const said = words ? shown.text.slice(Math.max(0, words.start - shown.start), Math.max(0, words.end - shown.start)) : "";
    dialog.classList.toggle("cells", CELLS.has(kind) && drawGrid(grid, tables, page, said));
    replace(
      text,
      shown.note ? h("p", { class: "note" }, shown.note) : null,
      h(
        "div",
        { class: "page-words" },
        withFigures(cutAtBlocks(shown.text, shown.start, read), figures(shown), shown.start).map((piece) => {
          if (piece instanceof Node) return piece;
          const inside = withQuote(piece.text, at, words);
          at += piece.text.length;
          if (piece.block === null) return inside;
          const faint = opacity(now.get(piece.block), strongest, Boolean(quote)).toFixed(3);
          return attach(h("mark", { data: { block: piece.block }, style: { "--mark": faint } }, inside), piece.block);
        }),
      ),
      shown.text ? null : h("p", { class: "soft" }, "There is no text on this page."),
    );
    bringIntoSight();
    drawQuote();
  }

  // The figures of the page, each with the place in the text before which it stands.
  const figures = (shown) =>
    pictures
      .filter((one) => one.page === shown.page)
      .map((one) => ({
        start: one.start,
        node: h(
          "figure",
          { class: "page-figure", data: { start: one.start } },
          h("img", {
            src: pictureAddress(documentId, one),
            width: one.width,
            height: one.height,
            alt: one.caption || "A picture without a caption",
          }),
        ),
      }));

  // Exactly the quoted words on the picture; where their places are not known, the blocks stay the only marks.
  async function drawQuote() {
    const mine = sequence;
    if (quote && !quoteBoxes) quoteBoxes = boxesOf(quote);
    const asked = found ? boxesOf(found) : quoteBoxes;
    const { boxes } = (await asked?.catch(() => null)) ?? { boxes: [] };
    if (mine !== sequence) return;
    if (!turned && !found && boxes.length && boxes.every((one) => one.page !== page)) {
      goTo(boxes[0].page); // a passage of several pages: the quoted words are on another one than it begins on
      return;
    }
    for (const box of boxes.filter((one) => one.page === page)) layer.append(h("div", { class: "box answer", style: placed(box) }));
    const inBox = pointed?.page === page && pointed.x0 !== undefined;
    if (inBox) layer.append(h("div", { class: "box answer", style: placed(pointed) }));
    if (boxes.length || pointed?.page === page) bringIntoSight();
  }

  function bringIntoSight() {
    requestAnimationFrame(() => {
      const inPlace = (one) => place?.page === page && place.blocks.includes(Number(one.dataset.block));
      const figure = pointed?.page === page ? text.querySelector(`.page-figure[data-start="${pointed.start}"]`) : null;
      if (figure) {
        text.scrollTop = figure.offsetTop - text.offsetTop - 60;
        return;
      }
      const words = [...text.querySelectorAll("mark")].find(inPlace) ?? text.querySelector(".quoted") ?? text.querySelector("mark");
      if (words) text.scrollTop = Math.max(0, words.offsetTop - text.offsetTop - 60);
      const box = [...layer.children].find(inPlace) ?? layer.querySelector(".box.answer") ?? layer.querySelector(".box"),
        pane = sheet.parentElement;
      if (box) pane.scrollTop = Math.max(0, box.offsetTop - pane.clientHeight / 3);
    });
  }

  openDialog(dialog, () => {
    window.removeEventListener("popstate", closed);
    if (history.state?.viewer) leave();
  });
  scale(0);
  show();
}

// Looks for words in the whole document; Enter goes to the next place, Shift and Enter to the one before.
function findIn(documentId, onHit) {
  let hits = [],
    at = -1,
    asked = "";
  const told = h("span", { class: "soft find-count", "aria-live": "polite" });
  const step = async (by) => {
    const words = box.value.trim();
    if (!words) return;
    if (words !== asked) {
      asked = words;
      at = by > 0 ? -1 : 0;
      hits = null; // until the answer to these words is here
      replace(told);
      const found = await get(`documents/${encodeURIComponent(documentId)}/find`, { text: words }).catch((error) => error);
      if (asked !== words) return; // others were looked for meanwhile
      if (found instanceof Error) {
        asked = "";
        replace(told, found.message);
        return;
      }
      hits = found.hits;
    }
    if (!hits) return;
    if (!hits.length) {
      replace(told, "Not found");
      return;
    }
    at = (at + by + hits.length) % hits.length;
    replace(told, `${at + 1} of ${hits.length}`);
    onHit(hits[at]);
  };
  const box = h("input", {
    class: "input find-box",
    type: "search",
    placeholder: "Find in it…",
    "aria-label": "Find in the document",
    onkeydown: (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      step(event.shiftKey ? -1 : 1);
    },
  });
  return h(
    "div",
    { class: "row find" },
    box,
    iconButton("Place before", "back", { onclick: () => step(-1) }),
    iconButton("Next place", "next", { onclick: () => step(1) }),
    told,
  );
}

// What is not to be had is not shown: the text counts.
async function exhibitsOf(documentId) {
  const found = await get(`documents/${encodeURIComponent(documentId)}/exhibits`).catch(() => ({ figures: [], tables: [] }));
  return { figures: found.figures.filter((one) => one.picture), tables: found.tables };
}

const placed = (box) => ({
  left: `${100 * box.x0}%`,
  top: `${100 * box.y0}%`,
  width: `${100 * (box.x1 - box.x0)}%`,
  height: `${100 * (box.y1 - box.y0)}%`,
});

// The quotation of the answer, where the passage holds it.
function quoteIn({ passage, reading, quote }) {
  const found = quote ?? reading?.quoted();
  const inside = found && passage?.document_id === found.document_id && found.start < passage.end_index && passage.start_index < found.end;
  return inside ? found : null;
}

// The page of the quotation, else that where most of the passage's strongest block stands.
const firstPage = (passage, quote, reading) => (quote ? (reading?.answer.quotation?.passage ?? passage).pages[0] : pageRead(passage));
