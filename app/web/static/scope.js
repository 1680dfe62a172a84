// Which documents a question may read: a dialog with collections and documents.

import { get, latest } from "./api.js";
import { button, h, nameOf, openDialog, plural, replace, toast } from "./dom.js";
import { lengthOf } from "./kinds.js";

export const emptyScope = () => ({ documents: new Map(), collections: new Map(), where: [] });

// What is sent with a question.
export const within = ({ documents, collections, where }) => ({
  document_ids: [...documents.keys()],
  collection_ids: [...collections.keys()],
  where: where || [],
});

export const isNarrowed = (scope) => Object.values(within(scope)).some((one) => one.length);

// Kept for this tab, so that a reload asks the same documents. Only ids: whoever signs in here next is told no names.
const KEPT = "cairn:scope";

export const keepScope = (scope) => sessionStorage.setItem(KEPT, JSON.stringify(within(scope)));

// { scope, named }: what was kept, to ask with at once, and a promise of the same with names, without what is gone.
export function keptScope() {
  const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "null");
  const scope = emptyScope();
  if (!kept) return { scope, named: Promise.resolve(scope) };
  for (const id of kept.document_ids) scope.documents.set(id, "A document");
  for (const id of kept.collection_ids) scope.collections.set(id, "A collection");
  scope.where = kept.where;
  return { scope, named: withNames(scope) };
}

async function withNames({ documents, collections, where }) {
  const [found, groups] = await Promise.all([
    Promise.all([...documents.keys()].map((id) => get(`documents/${encodeURIComponent(id)}`).catch(unlessGone))),
    collections.size ? get("collections") : { collections: [] },
  ]);
  const present = found.filter((one) => one !== null);
  return {
    documents: new Map(present.map((one) => [one.id, nameOf(one)])),
    collections: new Map(groups.collections.filter((one) => collections.has(one.id)).map((one) => [one.id, one.name])),
    where,
  };
}

function unlessGone(error) {
  if (error.status !== 404) throw error;
  return null;
}

export function describeScope({ documents, collections, where = [] }) {
  const count = documents.size + collections.size;
  if (where?.length) return `${count ? `${describeScope({ documents, collections })} ` : "Documents "}with ${where.join(", ")}`;
  if (!count) return "All documents";
  if (count === 1) return [...documents.values(), ...collections.values()][0];
  return [documents.size ? plural(documents.size, "document") : "", collections.size ? plural(collections.size, "collection") : ""]
    .filter(Boolean)
    .join(", ");
}

// Resolves to a new scope, or null when the dialog was left.
export function chooseScope(current) {
  const chosen = { documents: new Map(current.documents), collections: new Map(current.collections), where: current.where || [] };
  return new Promise((resolve) => {
    const list = h("div", { class: "pick-list" });
    const search = h("input", {
      class: "input",
      type: "search",
      placeholder: "Find a document…",
      "aria-label": "Find a document",
      oninput: () => later(),
    });
    const where = h("input", {
      class: "input",
      id: "scope-where",
      value: chosen.where.join("; "),
      placeholder: "author=Lindqvist; date>=2024",
      autocomplete: "off",
    });
    const dialog = h(
      "dialog",
      { class: "dialog wide", "aria-label": "Which documents may be read" },
      h("h2", {}, "Which documents may be read"),
      h("p", { class: "soft" }, "Nothing chosen means all of them."),
      search,
      list,
      h("label", { class: "soft", for: "scope-where" }, "Only those that meet these conditions"),
      where,
      h(
        "div",
        { class: "row end" },
        button("All documents", { class: "button quiet", onclick: () => finish(emptyScope()) }),
        button("Use these", { class: "button primary", onclick: () => use() }),
      ),
    );
    let timer,
      result = null;
    const later = () => {
      clearTimeout(timer);
      timer = setTimeout(fill, 150);
    };
    // Resolved at once: the dialog's own "close" event comes later, and a question sent meanwhile would miss the choice.
    const finish = (scope) => {
      result = scope;
      resolve(scope);
      dialog.close();
    };
    // What is no condition is said at once, by the server, before a question is put with it.
    const use = async () => {
      chosen.where = where.value
        .split(";")
        .map((one) => one.trim())
        .filter(Boolean);
      try {
        if (chosen.where.length) await get(`documents?${new URLSearchParams(chosen.where.map((one) => ["where", one]))}&limit=1`);
        finish(chosen);
      } catch (error) {
        toast(error.message, "bad");
      }
    };
    const tick = (kept, id, name, detail) => {
      if (kept.has(id)) kept.set(id, name); // of what was kept in this tab, only the id was known
      return h(
        "label",
        { class: "pick" },
        h("input", {
          type: "checkbox",
          checked: kept.has(id),
          onchange: (event) => (event.target.checked ? kept.set(id, name) : kept.delete(id)),
        }),
        h("span", { class: "grow" }, name),
        h("span", { class: "soft" }, detail),
      );
    };

    const fill = latest(
      () => Promise.all([get("collections"), get("documents", { search: search.value, limit: 100, sort: "title" })]),
      ([groups, found]) => {
        const words = search.value.toLowerCase();
        const ready = found.documents.filter((one) => one.state === "ready"); // others cannot be read yet
        const collections = groups.collections.filter((one) => one.name.toLowerCase().includes(words));
        replace(
          list,
          collections.length ? h("h3", {}, "Collections") : null,
          collections.map((one) =>
            tick(
              chosen.collections,
              one.id,
              one.name,
              [plural(one.documents, "document"), one.mine ? "" : one.owner && `of ${one.owner}`].filter(Boolean).join(", "),
            ),
          ),
          h("h3", {}, "Documents"),
          ready.map((one) =>
            tick(
              chosen.documents,
              one.id,
              nameOf(one),
              [lengthOf(one), one.mine ? "" : one.owner && `of ${one.owner}`].filter(Boolean).join(", "),
            ),
          ),
          found.total > found.documents.length
            ? h("p", { class: "soft" }, `${found.total - found.documents.length} more: type to find them.`)
            : null,
          ready.length ? null : h("p", { class: "soft" }, "None."),
        );
      },
      (error) => toast(error.message, "bad"),
    );

    openDialog(dialog, () => resolve(result));
    fill();
  });
}
