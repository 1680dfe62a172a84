// One document in the list: what it is, how it begins, its properties, and what can be done with it.

import { button, bytes, h, iconButton, nameOf, when } from "./dom.js";
import { lengthOf } from "./kinds.js";
import { propertyChips } from "./properties.js";
import { openViewer } from "./viewer.js";

const STATES = { ingesting: "being read", failed: "not read", cancelled: "cancelled" };

// `group`: the name of its collection, or undefined. `on`: ask, choose(whether), narrow(condition), properties, rename, remove.
export function documentRow(one, { group, selected, on }) {
  const box = h("input", {
    type: "checkbox",
    "aria-label": `Choose ${nameOf(one)}`,
    checked: selected,
    disabled: !one.mine,
    onchange: () => on.choose(box.checked),
  });
  return h(
    "div",
    { class: "item document", data: { document: one.id } },
    box,
    h(
      "div",
      { class: "grow entry" },
      h(
        "button",
        { type: "button", class: "plain", onclick: () => one.pages && openViewer({ document: one }) },
        h("div", { class: "item-title" }, nameOf(one)),
        h(
          "div",
          { class: "soft" },
          [
            one.source !== one.title ? one.source : "",
            one.mine ? "" : one.owner ? `of ${one.owner}` : "everybody's",
            lengthOf(one),
            bytes(one.size_bytes),
            when(one.added_at),
          ]
            .filter(Boolean)
            .join(" · "),
        ),
        one.description ? h("div", { class: "about" }, aboutOf(one.description)) : null,
        one.notes.length
          ? h(
              "div",
              { class: "note-text" },
              one.notes.slice(0, 3).join(" "),
              one.notes.length > 3 ? ` And ${one.notes.length - 3} more notes.` : "",
            )
          : null,
      ),
      propertyChips(one, on.narrow),
      one.state === "ready"
        ? button(
            "Ask about this document",
            {
              class: "button quiet small ask-about",
              "aria-label": `Ask about ${nameOf(one)}`,
              onclick: on.ask,
            },
            "send",
          )
        : null,
    ),
    group ? h("span", { class: "tag" }, group) : null,
    one.state === "ready" ? null : h("span", { class: `tag ${one.state}` }, STATES[one.state] || one.state),
    one.mine
      ? [
          iconButton(`Properties of ${nameOf(one)}`, "label", { onclick: on.properties }),
          iconButton(`Rename ${nameOf(one)}`, "edit", { onclick: on.rename }),
          iconButton(`Delete ${nameOf(one)}`, "trash", { onclick: on.remove }),
        ]
      : null,
  );
}

// How it begins, and what it speaks of most.
function aboutOf({ first_lines: begins, key_terms: terms }) {
  return [
    h("div", { class: "about-lines" }, begins),
    terms.length
      ? h(
          "div",
          { class: "about-terms" },
          terms.map((term) => h("span", { class: "term" }, term)),
        )
      : null,
  ];
}
