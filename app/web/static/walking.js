// Ways through a document in the viewer: from one passage that was read to the next, and over small pictures of its pages.

import { address } from "./api.js";
import { h, iconButton, replace } from "./dom.js";

const SHOWN = "cairn-thumbnails"; // whether the small pictures are wanted, kept in this browser
const THUMBNAIL_PX = 300;

// The page on which most of a passage's strongest block stands.
export function pageRead(passage) {
  const best = [...passage.blocks].sort((a, b) => b.score - a.score)[0];
  const lines = new Map();
  for (const { page } of best?.boxes ?? []) lines.set(page, (lines.get(page) || 0) + 1);
  const [most] = [...lines].sort((a, b) => b[1] - a[1]);
  return most?.[0] ?? passage.pages[0] ?? 1;
}

// [{ page, blocks }, ...] of what was read in this document, in the order of the text.
export function placesRead(passage, reading) {
  if (!passage) return [];
  const beside = (reading?.answer.passages ?? []).filter((one) => one.document_id === passage.document_id);
  const holds = (one) => one.start_index <= passage.start_index && passage.end_index <= one.end_index;
  const own = beside.some(holds) ? [] : [passage];
  return [...own, ...beside]
    .sort((a, b) => a.start_index - b.start_index)
    .map((one) => ({ page: pageRead(one), blocks: one.block_ids, first: one.start_index, last: one.end_index }));
}

// Two buttons and a count; null where there is only one place. `onPlace` gets the place to show.
export function placeWalk(places, begin, onPlace) {
  if (places.length < 2) return null;
  let at = Math.max(
    0,
    places.findIndex((one) => one.first <= begin && begin < one.last),
  );
  const told = h("span", { class: "soft walk-count", "aria-live": "polite" });
  const tell = () => replace(told, `${at + 1} of ${places.length} read`);
  const step = (by) => () => {
    at = (at + by + places.length) % places.length;
    tell();
    onPlace(places[at]);
  };
  tell();
  return h(
    "div",
    { class: "row walk" },
    iconButton("Previous passage that was read", "up-small", { onclick: step(-1) }),
    told,
    iconButton("Next passage that was read", "down-small", { onclick: step(1) }),
  );
}

// { button, strip, name(labels), update(page) }: small pictures of all pages, drawn when they are first wanted. Pages in `marked` have a dot.
export function thumbnails(documentId, count, marked, onPage) {
  const strip = h("nav", { class: "thumbnails", "aria-label": "Pages of the document", hidden: true });
  let drawn = [],
    names = [],
    current = 1;
  const name = (labels) => {
    if (names === labels) return;
    names = labels;
    if (drawn.length) draw(); // before they were known
  };
  const draw = () => {
    drawn = Array.from({ length: count }, (_, index) => {
      const page = index + 1;
      const picture = h("img", {
        loading: "lazy",
        alt: "",
        src: address(`documents/${encodeURIComponent(documentId)}/pages/${page}.png?width_px=${THUMBNAIL_PX}`),
      });
      return h(
        "button",
        {
          type: "button",
          class: marked.has(page) ? "thumbnail marked" : "thumbnail",
          "aria-label": marked.has(page) ? `Page ${names[index] || page}, read for the answer` : `Page ${names[index] || page}`,
          onclick: () => onPage(page),
        },
        picture,
        h("span", {}, names[index] || page),
      );
    });
    replace(strip, drawn);
    update(current);
  };
  const update = (page) => {
    current = page;
    for (const [index, one] of drawn.entries()) {
      if (index + 1 === page) one.setAttribute("aria-current", "page");
      else one.removeAttribute("aria-current");
    }
    drawn[page - 1]?.scrollIntoView({ block: "nearest" });
  };
  const show = (wanted) => {
    strip.hidden = !wanted;
    button.setAttribute("aria-pressed", String(wanted));
    if (wanted && !drawn.length) draw();
    else update(current);
  };
  const button = iconButton("Small pictures of the pages", "grid", {
    "aria-pressed": "false",
    onclick: () => {
      localStorage.setItem(SHOWN, String(strip.hidden));
      show(strip.hidden);
    },
  });
  const begin = () => localStorage.getItem(SHOWN) === "true" && show(true);
  return { button, strip, name, update, begin };
}
