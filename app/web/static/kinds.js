// What documents of a kind are made of.

import { plural } from "./dom.js";
import { CELL_KINDS, DRAWN_KINDS, KIND_OF_SUFFIX } from "./words.js";

export const DRAWN = new Set(DRAWN_KINDS); // kinds of documents whose pages can be drawn
export const CELLS = new Set(CELL_KINDS); // and those that are sheets
export const kindOf = (name) => KIND_OF_SUFFIX[name.slice(name.lastIndexOf(".")).toLowerCase()];

const PARTS = { pptx: "slide", ppt: "slide", epub: "chapter" };

// How long a document is, in words; "" for one whose pages are only made when it is printed.
export const lengthOf = ({ kind, pages }) =>
  pages > 1 || DRAWN.has(kind) ? plural(pages, DRAWN.has(kind) ? "page" : PARTS[kind] || "part") : "";
