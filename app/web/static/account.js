// Who is signed in, and with whom collections can be shared. Without accounts nothing of this is shown.

import { address, firstOf, post, put } from "./api.js";
import { askText, button, h, icon, replace, toast } from "./dom.js";

let asked = null;

// { name, people }: an empty name means that there are no accounts.
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

// A button with the person's name, for the head of the page; it opens what an account can do.
export function mountAccount(node) {
  account().then(({ name }) => {
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
        h(
          "div",
          { class: "row end" },
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
      dialog.addEventListener("close", () => dialog.remove());
      dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
      document.body.append(dialog);
      dialog.showModal();
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
  return one.shared_with.length ? `Shared with ${one.shared_with.join(", ")}` : one.owner ? "Only you see it" : "";
}

// A dialog in which the owner of a collection says who may read it. Resolves to true when something changed.
export async function share(one) {
  const { name, people } = await account();
  const chosen = new Set(one.shared_with);
  const boxes = people
    .filter((person) => person !== name)
    .map((person) => {
      const box = h("input", {
        type: "checkbox",
        checked: chosen.has(person),
        disabled: one.everyone,
        onchange: () => (box.checked ? chosen.add(person) : chosen.delete(person)),
      });
      return { box, node: h("label", { class: "pick" }, box, h("span", { class: "grow" }, person)) };
    });
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
        await put(`collections/${one.id}/sharing`, { everyone: everyone.checked, people: everyone.checked ? [] : [...chosen] });
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
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(changed);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
