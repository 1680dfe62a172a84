// Collections as a row of chips above the list of documents: one is looked at, made, shared, renamed, or removed.

import { share, sharingOf } from "./account.js";
import { patch, post, remove } from "./api.js";
import { bundleControls } from "./bundles.js";
import { askText, confirm, h, iconButton, oneByOne, renew } from "./dom.js";
import { knowCollections } from "./files.js";

// `chosen`: the id of the one that is looked at, "" for all documents.
export const collections = { all: [], chosen: "" };
let row = null,
  tellChange = () => {};

// `onChange`: collections and documents are to be shown as they are now.
export function mountCollections(onChange) {
  row = h("div", { class: "collections", role: "group", "aria-label": "Collections" });
  tellChange = onChange;
  return row;
}

export function showCollections(all) {
  collections.all = all;
  knowCollections(all);
  const chosen = collections.all.find((one) => one.id === collections.chosen);
  renew(
    row,
    chip("", "All"),
    collections.all.map((one) => chip(one.id, one.mine ? one.name : `${one.name} · ${one.owner || "everybody"}`, one.documents)),
    iconButton("New collection", "plus", { onclick: make }),
    chosen?.mine && chosen.owner
      ? iconButton(`Share ${chosen.name}`, "people", {
          onclick: async () => {
            if (await share(chosen)) tellChange();
          },
        })
      : null,
    chosen?.mine
      ? [
          iconButton(`Rename ${chosen.name}`, "edit", { onclick: () => rename(chosen) }),
          iconButton(`Remove ${chosen.name}`, "trash", { onclick: () => drop(chosen) }),
        ]
      : null,
    h("span", { class: "grow" }),
    bundleControls(chosen, tellChange),
    chosen && sharingOf(chosen) ? h("span", { class: "soft sharing" }, sharingOf(chosen)) : null,
  );
}

const chip = (id, label, count) =>
  h(
    "button",
    {
      type: "button",
      class: "chip",
      "aria-pressed": String(collections.chosen === id),
      onclick: () => {
        collections.chosen = id;
        tellChange();
      },
    },
    label,
    count === undefined ? null : h("span", { class: "count" }, count),
  );

async function change(action) {
  await oneByOne([null], action);
  tellChange();
}

async function make() {
  const name = await askText("New collection", "Name");
  if (name) change(() => post("collections", { name }));
}

async function rename(one) {
  const name = await askText("Rename collection", "Name", one.name);
  if (name && name !== one.name) change(() => patch(`collections/${one.id}`, { name }));
}

async function drop(one) {
  if (await confirm(`Remove “${one.name}”?`, "Its documents stay, in no collection.", "Remove"))
    change(() => remove(`collections/${one.id}`));
}
