// Who is signed in, and with whom collections can be shared. Without accounts nothing of this is shown.

import { address, firstOf, post, put } from "./api.js";
import { askText, button, h, icon, openDialog, replace, toast } from "./dom.js";

let asked = null;

// { name, people, single_sign_on }: an empty name means that there are no accounts.
export function account() {
  asked ||= firstOf("account").catch(() => {
    asked = null;
    return { name: "", people: [] };
  });
  return asked;
}

const away = () => location.assign(new URL("../../login", address("")));

async function signOut() {
  try {
    await fetch(new URL("../../logout", address("")), { method: "POST", redirect: "manual" });
  } finally {
    away();
  }
}

async function changePassword() {
  const old = await askText("Change password", "Current password", "", { type: "password", yes: "Next" });
  const fresh = old && (await askText("Change password", "New password, 8 characters or more", "", { type: "password", yes: "Change" }));
  if (!fresh) return;
  try {
    await post("account/password", { old, new: fresh });
    away();
  } catch (error) {
    toast(error.message, "bad");
  }
}

async function linkAccount() {
  try {
    location.assign((await post("account/link", {})).address);
  } catch (error) {
    toast(error.message, "bad");
  }
}

// A button with the person's name, for the head of the page; it opens what an account can do.
export function mountAccount(node) {
  account().then(({ name, single_sign_on: other }) => {
    if (!name) return;
    const open = () => {
      const dialog = h(
        "dialog",
        { class: "dialog", "aria-label": "Your account" },
        h("h2", {}, name),
        h(
          "p",
          { class: "soft" },
          "You see your documents, and those that are shared with you or with everybody. Your questions and answers are yours alone.",
        ),
        other?.linked && h("p", { class: "soft" }, `Linked to ${other.title}.`),
        h(
          "div",
          { class: "row end" },
          other && !other.linked && button(`Link to ${other.title}`, { class: "button quiet", onclick: linkAccount }),
          other?.has_password !== false &&
            button("Change password", {
              class: "button quiet",
              onclick: () => {
                dialog.close();
                changePassword();
              },
            }),
          button("Sign out", { class: "button primary", onclick: signOut }),
        ),
      );
      dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
      openDialog(dialog);
    };
    replace(
      node,
      h(
        "button",
        { type: "button", class: "account-button", "aria-label": `Account of ${name}`, onclick: open },
        icon("person"),
        h("span", {}, name),
      ),
    );
  });
}

// Who may read a collection, in words; empty without accounts.
export function sharingOf(one) {
  if (!one.mine) return one.owner ? `Shared by ${one.owner}` : "Everybody may read it";
  if (one.everyone) return "Shared with everybody";
  const readers = [...one.shared_with, ...one.groups];
  return readers.length ? `Shared with ${readers.join(", ")}` : one.owner ? "Only you see it" : "";
}

// A dialog in which the owner of a collection says who may read it. Resolves to true when something changed.
export async function share(one) {
  const { name, people, single_sign_on: other } = await account();
  const chosen = new Set(one.shared_with);
  const chosenGroups = new Set(one.groups);
  const pick = (set, of, kind) => {
    const box = h("input", {
      type: "checkbox",
      checked: set.has(of),
      disabled: one.everyone,
      onchange: () => (box.checked ? set.add(of) : set.delete(of)),
    });
    const said = kind && h("span", { class: "soft" }, kind);
    return { box, node: h("label", { class: "pick" }, box, h("span", { class: "grow" }, of), said) };
  };
  const boxes = [
    ...[...new Set([...(other?.groups || []), ...one.groups])].sort().map((group) => pick(chosenGroups, group, "group")),
    ...people.filter((person) => person !== name).map((person) => pick(chosen, person, "")),
  ];
  const everyone = h("input", {
    type: "checkbox",
    checked: one.everyone,
    onchange: () => {
      for (const { box } of boxes) box.disabled = everyone.checked;
    },
  });
  return new Promise((resolve) => {
    let changed = false;
    const save = async () => {
      try {
        const readers = everyone.checked ? {} : { people: [...chosen], groups: [...chosenGroups] };
        await put(`collections/${one.id}/sharing`, { everyone: everyone.checked, ...readers });
        changed = true;
      } catch (error) {
        toast(error.message, "bad");
      }
      dialog.close();
    };
    const dialog = h(
      "dialog",
      { class: "dialog", "aria-label": `Share ${one.name}` },
      h("h2", {}, `Share “${one.name}”`),
      h("p", { class: "soft" }, "Who may read the documents in it and ask about them. Only you can change them."),
      h(
        "div",
        { class: "pick-list" },
        h("label", { class: "pick" }, everyone, h("span", { class: "grow" }, "Everybody with an account")),
        boxes.map(({ node }) => node),
      ),
      h(
        "div",
        { class: "row end" },
        button("Cancel", { class: "button quiet", onclick: () => dialog.close() }),
        button("Share", { class: "button primary", onclick: save }),
      ),
    );
    openDialog(dialog, () => resolve(changed));
  });
}
