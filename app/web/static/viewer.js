// A page as picture and as text, with the blocks that were read drawn on both. Boxes come from storage as they are.

import { address, get } from "./api.js";
import { h, iconButton, nameOf, replace, weight } from "./dom.js";
import { cutAtBlocks, opacity, withQuote } from "./marking.js";

const WIDTHS = [60, 80, 100, 140, 190]; // zoom, percent of the pane

// `target`: { passage, reading, quote } from an answer, or { document } from the library. What is quoted has its own mark.
export function openViewer(target) {
  const { passage, reading } = target;
  const quote = quoteIn(target);
  const documentId = passage ? passage.document_id : target.document.id;
  const title = nameOf(passage || target.document);
  const count = passage ? passage.total_pages : target.document.pages;
  const own = new Map((passage?.blocks || []).map((one) => [one.block_id, one.score]));
  let kind = target.document?.kind; // asked for where a passage is shown
  const quoteBoxes = quote && get(`documents/${encodeURIComponent(documentId)}/boxes`, { start: quote.start, end: quote.end });
  let page = passage ? firstPage(passage, quote, reading) : 1,
    zoom = 2,
    sequence = 0;

  const image = h("img", { class: "page-image", alt: "" });
  const layer = h("div", { class: "boxes", "aria-hidden": "true" });
  const sheet = h("div", { class: "sheet" }, image, layer);
  const text = h("div", { class: "page-text", tabindex: "0", role: "region", "aria-label": "Text of the page" });
  const position = h("span", { class: "position", "aria-live": "polite" });
  const back = iconButton("Previous page", "back", { onclick: () => turn(-1) });
  const next = iconButton("Next page", "next", { onclick: () => turn(1) });
  const dialog = h(
    "dialog",
    { class: "viewer", "aria-label": `${title}, pages` },
    h(
      "header",
      {},
      h("div", { class: "grow viewer-title" }, title),
      h("div", { class: "row" }, back, position, next),
      h(
        "div",
        { class: "row zoom" },
        iconButton("Smaller", "minus", { onclick: () => scale(-1) }),
        iconButton("Larger", "plus", { onclick: () => scale(1) }),
      ),
      iconButton("Close", "close", { onclick: () => dialog.close(), autofocus: true }),
    ),
    h(
      "div",
      { class: "viewer-body" },
      h("div", { class: "sheet-pane", tabindex: "0", role: "region", "aria-label": "Picture of the page" }, sheet),
      text,
    ),
  );
  // Back closes the page, as it would on a phone; closing it any other way goes back, too.
  history.pushState({ viewer: true }, "");
  const closed = () => dialog.close();
  window.addEventListener("popstate", closed);
  dialog.addEventListener("close", () => {
    window.removeEventListener("popstate", closed);
    if (history.state?.viewer) history.back();
    dialog.remove();
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "PageDown" || event.key === "ArrowRight") turn(1);
    else if (event.key === "PageUp" || event.key === "ArrowLeft") turn(-1);
    else return;
    event.preventDefault();
  });

  const weights = () => (reading ? reading.weights() : own);

  function turn(step) {
    const to = page + step;
    if (to < 1 || (count && to > count)) return;
    page = to;
    show();
  }

  function scale(step) {
    zoom = Math.min(WIDTHS.length - 1, Math.max(0, zoom + step));
    sheet.style.width = `${WIDTHS[zoom]}%`;
  }

  async function show() {
    const mine = ++sequence;
    replace(position, count ? `Page ${page} of ${count}` : `Page ${page}`);
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
      kind ??= (await get(`documents/${encodeURIComponent(documentId)}`)).kind;
      if (mine !== sequence) return;
      dialog.classList.toggle("text-only", kind !== "pdf");
      if (kind === "pdf") image.src = address(`${path}.png?width_px=1200`);
      const found = await get(path);
      if (mine === sequence) draw(found);
    } catch (error) {
      if (mine === sequence) replace(text, h("p", { class: "soft" }, error.message));
    }
  }

  function draw(found) {
    const now = weights(),
      strongest = Math.max(1e-9, ...now.values());
    const read = found.blocks.filter((block) => now.get(block.block_id) > 0);
    const marks = new Map();
    const light = (id, on) => {
      for (const one of marks.get(id) || []) one.classList.toggle("lit", on);
    };
    const attach = (node, id) => {
      if (!marks.has(id)) marks.set(id, []);
      marks.get(id).push(node);
      node.addEventListener("pointerenter", () => light(id, true));
      node.addEventListener("pointerleave", () => light(id, false));
      node.title = `${reading ? `Block ${reading.rank(id)}: ` : ""}${weight(now.get(id))}`;
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
    let at = found.start;
    replace(
      text,
      found.note ? h("p", { class: "note" }, found.note) : null,
      h(
        "div",
        { class: "page-words" },
        cutAtBlocks(found.text, found.start, read).map((piece) => {
          const words = withQuote(piece.text, at, quote);
          at += piece.text.length;
          if (piece.block === null) return words;
          const faint = opacity(now.get(piece.block), strongest, Boolean(quote)).toFixed(3);
          return attach(h("mark", { data: { block: piece.block }, style: { "--mark": faint } }, words), piece.block);
        }),
      ),
      found.text ? null : h("p", { class: "soft" }, "There is no text on this page."),
    );
    bringIntoSight();
    drawQuote();
  }

  // Exactly the quoted words on the picture; where their places are not known, the blocks stay the only marks.
  async function drawQuote() {
    const mine = sequence;
    const { boxes } = (await quoteBoxes?.catch(() => null)) ?? { boxes: [] };
    if (mine !== sequence) return;
    for (const box of boxes.filter((one) => one.page === page)) layer.append(h("div", { class: "box answer", style: placed(box) }));
    if (boxes.length) bringIntoSight();
  }

  function bringIntoSight() {
    requestAnimationFrame(() => {
      const words = text.querySelector(".quoted") ?? text.querySelector("mark");
      if (words) text.scrollTop = Math.max(0, words.offsetTop - text.offsetTop - 60);
      const box = layer.querySelector(".box.answer") ?? layer.querySelector(".box"),
        pane = sheet.parentElement;
      if (box) pane.scrollTop = Math.max(0, box.offsetTop - pane.clientHeight / 3);
    });
  }

  document.body.append(dialog);
  dialog.showModal();
  scale(0);
  show();
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

// The page of the quotation, else that where the passage's strongest block stands.
function firstPage(passage, quote, reading) {
  if (quote) return (reading?.answer.quotation?.passage ?? passage).pages[0];
  const best = [...passage.blocks].sort((a, b) => b.score - a.score)[0];
  return best?.boxes[0]?.page ?? passage.pages[0] ?? 1;
}
