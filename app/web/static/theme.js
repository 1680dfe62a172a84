// Light, dark, or as the system has it. Kept in this browser only.

import { h, replace } from "./dom.js";

const KEY = "cairn-theme";
const NAMES = ["system", "light", "dark"];
const dark = matchMedia("(prefers-color-scheme: dark)");

export function themeName() {
  const stored = localStorage.getItem(KEY);
  return NAMES.includes(stored) ? stored : "system";
}

const wantsDark = () => themeName() === "dark" || (themeName() === "system" && dark.matches);

// Gradio puts its own class on the body while it starts; ours is set again whenever it changes.
export function applyTheme() {
  const set = () => {
    const want = wantsDark();
    if (document.body.classList.contains("dark") !== want) document.body.classList.toggle("dark", want);
    document.documentElement.dataset.theme = want ? "dark" : "light";
  };
  set();
  new MutationObserver(set).observe(document.body, { attributes: true, attributeFilter: ["class"] });
  dark.addEventListener("change", set);
  document.addEventListener("cairn:theme", set);
}

export function setTheme(name) {
  localStorage.setItem(KEY, name);
  document.dispatchEvent(new CustomEvent("cairn:theme"));
}

export const nextTheme = () => setTheme(NAMES[(NAMES.indexOf(themeName()) + 1) % NAMES.length]);

export function mountAppearance(node) {
  const choose = (name, label) =>
    h(
      "label",
      { class: "choice" },
      h("input", {
        type: "radio",
        name: "appearance",
        value: name,
        checked: themeName() === name,
        onchange: () => setTheme(name),
      }),
      h("span", {}, label),
    );
  const draw = () =>
    replace(
      node,
      h(
        "fieldset",
        { class: "appearance" },
        h("legend", {}, "Appearance"),
        choose("system", "Like the system"),
        choose("light", "Light"),
        choose("dark", "Dark"),
      ),
    );
  draw();
  document.addEventListener("cairn:theme", draw);
}
