// What documents of a kind are made of.

import { plural } from "./dom.js";

export const DRAWN = new Set(["pdf", "png", "jpg", "tif"]); // kinds of documents whose pages can be drawn
export const CELLS = new Set(["xlsx", "xls", "ods", "csv", "tsv"]); // and those that are sheets
// They are called like the usual end of a file's name.
export const kindOf = (name) => name.split(".").pop().toLowerCase().replace("jpeg", "jpg").replace("tiff", "tif");

const PARTS = { pptx: "slide", ppt: "slide", epub: "chapter" };

// How long a document is, in words; "" for one whose pages are only made when it is printed.
export const lengthOf = ({ kind, pages }) =>
  pages > 1 || DRAWN.has(kind) ? plural(pages, DRAWN.has(kind) ? "page" : PARTS[kind] || "part") : "";
