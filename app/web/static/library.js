// The library: documents and collections. All of it is what the server says; a refresh changes nothing.

import { get, latest, patch, post } from "./api.js";
import { collections, mountCollections, showCollections } from "./collections.js";
import { askOnly, focusQuestion } from "./composer.js";
import { documentRow } from "./document.js";
import { askText, button, bytes, confirm, h, iconButton, nameOf, oneByOne, placeOf, plural, renew, replace, toast } from "./dom.js";
import { documentsInJobs, dropZone, mountFiles } from "./files.js";
import { chosenConditions, editProperties } from "./properties.js";
import { openViewer } from "./viewer.js";

const PAGE = 50;
const TYPING_MS = 250; // without a further letter
const SORTS = [
  ["added", "Newest first"],
  ["title", "Title"],
  ["source", "File name"],
  ["size", "Largest first"],
  ["pages", "Most pages"],
];

const view = { search: "", sort: "added", where: [], offset: 0, selected: new Set() };
let parts = null,
  leave = () => {};

export function mountLibrary(node, { goTo }) {
  leave = () => goTo("ask");
  const [input, drop, others] = dropZone("file-input");
  let timer;
  const search = h("input", {
    class: "input",
    type: "search",
    placeholder: "Find by name, title or text…",
    "aria-label": "Find documents",
    value: view.search,
    oninput: () => {
      view.search = search.value;
      clearTimeout(timer);
      timer = setTimeout(look, TYPING_MS);
    },
  });
  const sort = h(
    "select",
    {
      class: "input",
      "aria-label": "Sort",
      onchange: () => {
        view.sort = sort.value;
        look();
      },
    },
    SORTS.map(([value, label]) => h("option", { value, selected: value === view.sort }, label)),
  );
  const list = h("section", { class: "documents", "aria-label": "Documents" });
  const bulk = h("div", { class: "bulk", hidden: true });
  const passages = h("section", { class: "in-text", "aria-label": "Found in the text" });
  const where = h("div", { class: "properties narrowed" });
  parts = { node, list, bulk, passages, where };
  replace(
    node,
    h(
      "div",
      { class: "library" },
      input,
      drop,
      others,
      mountFiles(),
      mountCollections(look),
      h("div", { class: "row tools" }, search, sort),
      where,
      bulk,
      list,
      passages,
    ),
  );
  draw();
}

// Other documents are wanted: the list begins at its first page.
function look() {
  view.offset = 0;
  draw();
  drawPassages();
}

// What stands in the documents themselves, the nearest passages first.
const drawPassages = latest(
  async () => {
    const query = view.search.trim();
    if (query.length < 3) return null;
    inText(h("p", { class: "soft", role: "status" }, "Looking…"));
    const within = { collection_ids: collections.chosen ? [collections.chosen] : [], where: view.where };
    return post("search", { query, k: 5, within });
  },
  showPassages,
  (error) => inText(h("p", { class: "bad-text" }, error.message)),
);

const inText = (...found) => replace(parts.passages, h("h2", {}, "In the text"), found);

function showPassages(found) {
  if (!found) replace(parts.passages);
  else if (!found.passages.length) inText(h("p", { class: "soft" }, "Nothing was found there either."));
  else
    inText(
      found.passages.map((passage) =>
        h(
          "div",
          { class: "item" },
          h(
            "button",
            { type: "button", class: "plain grow", onclick: () => openViewer({ passage, reading: null }) },
            h("div", { class: "item-title serif in-text-words" }, passage.text),
            h("div", { class: "soft" }, placeOf(passage)),
          ),
        ),
      ),
    );
}

document.addEventListener("cairn:view", (event) => {
  if (event.detail.view === "library" && parts) draw();
});
document.addEventListener("cairn:library", () => {
  if (!parts?.node.offsetParent) return; // drawn when it is next looked at
  draw();
});
document.addEventListener("cairn:back", () => parts && draw());
let inJobs = "";
document.addEventListener("cairn:files", () => {
  const now = [...documentsInJobs()].join(" ");
  if (now === inJobs || !parts?.node.offsetParent) return;
  inJobs = now;
  draw();
});

// Collections and documents together: the one names the other.
const draw = latest(
  async () => {
    const all = (await get("collections")).collections;
    if (!all.some((one) => one.id === collections.chosen)) collections.chosen = "";
    const { search, where, sort, offset } = view;
    return [all, await get("documents", { search, collection_id: collections.chosen, where, sort, limit: PAGE, offset })];
  },
  show,
  (error) => replace(parts.list, h("div", { class: "verdict bad" }, error.message)),
);

function show([all, found]) {
  if (!found.documents.length && view.offset) {
    view.offset = 0;
    draw();
    return;
  }
  showCollections(all);
  const pages = Math.ceil(found.total / PAGE),
    at = view.offset / PAGE;
  const turn = (step) => () => {
    view.offset += step * PAGE;
    draw();
    parts.node.querySelector(".tools").scrollIntoView();
  };
  const others = documentsInJobs(),
    listed = found.documents.filter((one) => !others.has(one.id));
  renew(
    parts.list,
    found.nearest
      ? h("p", { class: "soft", role: "status" }, `No document has these words. The nearest in the library: ${found.nearest}`)
      : null,
    listed.length
      ? h(
          "div",
          { class: "soft summary" },
          `${plural(found.total - found.documents.length + listed.length, "document")}, ${bytes(found.size_bytes)}`,
        )
      : empty(),
    listed.map(documentItem),
    pages > 1
      ? h(
          "nav",
          { class: "pager", "aria-label": "Pages of the list" },
          iconButton("Earlier", "back", { disabled: at === 0, onclick: turn(-1) }),
          h("span", { class: "soft" }, `${at + 1} of ${pages}`),
          iconButton("Later", "next", { disabled: at >= pages - 1, onclick: turn(1) }),
        )
      : null,
  );
  drawBulk();
}

// Documents that meet these conditions, and no others.
function narrow(where) {
  view.where = where;
  renew(
    parts.where,
    chosenConditions(where, (one) => narrow(where.filter((other) => other !== one))),
  );
  look();
}

const empty = () =>
  h(
    "p",
    { class: "empty-note" },
    view.search
      ? "No document has these words."
      : collections.chosen || view.where.length
        ? "No such documents."
        : "No documents yet. Drop some above: they are read once and remembered.",
  );

const documentItem = (one) =>
  documentRow(one, {
    group: collections.all.find((item) => item.id === one.collection_id)?.name,
    selected: view.selected.has(one.id),
    on: {
      choose: (chosen) => {
        chosen ? view.selected.add(one.id) : view.selected.delete(one.id);
        drawBulk();
      },
      narrow: (condition) => view.where.includes(condition) || narrow([...view.where, condition]),
      ask: () => {
        askOnly(one);
        leave();
        focusQuestion();
      },
      properties: () => properties(one),
      rename: () => rename(one),
      remove: () => removeAll([one]),
    },
  });

async function change(ids, action) {
  await oneByOne(ids, action);
  draw();
}

async function rename(one) {
  const title = await askText("Rename document", "Title", nameOf(one));
  if (title && title !== one.title) change([one.id], (id) => patch(`documents/${id}`, { title }));
}

async function properties(one) {
  if (await editProperties(one, nameOf(one))) draw();
}

async function removeAll(documents) {
  const many = documents.length > 1;
  const size = documents.reduce((sum, one) => sum + (one.size_bytes || 0), 0);
  const sure = await confirm(
    many ? `Delete ${documents.length} documents?` : `Delete “${nameOf(documents[0])}”?`,
    `What the model remembers of ${many ? "them" : "it"}, the original ${many ? "files" : "file"} and the answers that used ${many ? "them" : "it"} will be deleted permanently.${size ? ` About ${bytes(size)} will be freed.` : ""}`,
    "Delete",
  );
  if (!sure) return;
  try {
    const gone = await post("documents/delete", { document_ids: documents.map((one) => one.id) });
    for (const one of documents) view.selected.delete(one.id);
    toast(
      `Deleted ${plural(gone.documents, "document")}${gone.answers ? ` and ${plural(gone.answers, "answer")}` : ""}: ${bytes(gone.freed_bytes)} freed.`,
    );
  } catch (error) {
    toast(error.message, "bad");
  }
  draw();
  drawPassages();
}

function drawBulk() {
  const ids = [...view.selected];
  parts.bulk.hidden = !ids.length;
  if (!ids.length) return;
  const move = h(
    "select",
    {
      class: "input small",
      "aria-label": "Move to a collection",
      onchange: () => {
        const target = move.value === "none" ? null : move.value;
        view.selected.clear();
        change(ids, (id) => patch(`documents/${id}`, { collection_id: target }));
      },
    },
    h("option", { value: "" }, "Move to…"),
    h("option", { value: "none" }, "No collection"),
    collections.all.filter((one) => one.mine).map((one) => h("option", { value: one.id }, one.name)),
  );
  replace(
    parts.bulk,
    h("span", { class: "grow" }, `${plural(ids.length, "document")} chosen`),
    move,
    button(
      "Delete",
      { class: "button danger small", onclick: () => removeAll(ids.map((id) => ({ id, title: "the chosen document", size_bytes: 0 }))) },
      "trash",
    ),
    iconButton("Choose none", "close", {
      onclick: () => {
        view.selected.clear();
        draw();
      },
    }),
  );
}
