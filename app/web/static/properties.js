// Properties of documents: shown as chips that narrow the list, and set by hand in a dialog.

import { patch } from "./api.js";
import { button, h, iconButton, openDialog, replace } from "./dom.js";

const FIRST = [
  ["author", "Authors", "Ann Lee; Ben Ray"],
  ["date", "Date", "2024-01-31, 2024-01 or 2024"],
  ["language", "Language", "en"],
  ["tag", "Tags", "signed; checked"],
];
const SHOWN = new Set(["author", "date", "tag"]); // in the list; the dialog has all

const words = (name) => name.charAt(0).toUpperCase() + name.slice(1);
const listed = (values) => (values ?? []).join("; ");
const parted = (text) =>
  text
    .split(";")
    .map((one) => one.trim())
    .filter(Boolean);

// `onChoose(condition)`: only documents that meet it are wanted.
export function propertyChips({ properties }, onChoose) {
  const chips = Object.entries(properties)
    .filter(([name]) => SHOWN.has(name))
    .flatMap(([name, values]) => values.map((value) => [name, value]));
  if (!chips.length) return null;
  return h(
    "div",
    { class: "properties" },
    chips.map(([name, value]) =>
      h(
        "button",
        { type: "button", class: "property", title: `Only documents with ${name} ${value}`, onclick: () => onChoose(`${name}=${value}`) },
        h("span", { class: "soft" }, `${words(name)} `),
        value,
      ),
    ),
  );
}

// The conditions that narrow the list, each to be taken back. `onDrop(condition)`.
export const chosenConditions = (where, onDrop) =>
  where.map((one) =>
    h("span", { class: "property chosen" }, one, iconButton(`No longer only ${one}`, "close", { onclick: () => onDrop(one) })),
  );

// Resolves to true once something was changed.
export function editProperties(document_, name) {
  const { properties } = document_;
  const others = Object.keys(properties).filter((one) => !FIRST.some(([first]) => first === one));
  const field = (key, label, placeholder = "") => {
    const input = h("input", { class: "input", id: `property-${key}`, value: listed(properties[key]), placeholder, autocomplete: "off" });
    return { key, input, row: [h("label", { for: input.id }, label), input] };
  };
  const fields = [...FIRST.map((one) => field(...one)), ...others.map((one) => field(one, words(one)))];
  const newName = h("input", { class: "input", "aria-label": "Name of a new field", placeholder: "Another field", autocomplete: "off" });
  const newValue = h("input", { class: "input", "aria-label": "Value of the new field", autocomplete: "off" });
  const told = h("p", { class: "bad-text", role: "alert" });
  return new Promise((resolve) => {
    let changed = false;
    const save = async (event) => {
      event.preventDefault();
      const wanted = fields.filter(({ key, input }) => input.value.trim() !== listed(properties[key]));
      const change = Object.fromEntries(wanted.map(({ key, input }) => [key, parted(input.value)]));
      if (newName.value.trim() && newValue.value.trim()) change[newName.value.trim()] = parted(newValue.value);
      try {
        if (Object.keys(change).length) await patch(`documents/${document_.id}`, { properties: change });
        changed = true;
        dialog.close();
      } catch (error) {
        replace(told, error.message);
      }
    };
    const dialog = h(
      "dialog",
      { class: "dialog", "aria-label": `Properties of ${name}` },
      h(
        "form",
        { onsubmit: save },
        h("h2", {}, "Properties"),
        h("p", { class: "soft" }, `${name}. Several values are parted by semicolons.`),
        h(
          "div",
          { class: "property-fields" },
          fields.map(({ row }) => row),
          newName,
          newValue,
        ),
        told,
        h(
          "div",
          { class: "row end" },
          button("Cancel", { class: "button quiet", onclick: () => dialog.close() }),
          button("Save", { class: "button primary", type: "submit" }),
        ),
      ),
    );
    openDialog(dialog, () => resolve(changed));
  });
}
