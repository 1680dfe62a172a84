// Fills the columns that the Gradio page provides, and keeps the address bar in step with what is shown.

import { mountAccount } from "./account.js";
import { mountAsk, openAnswer } from "./ask.js";
import { followChanges } from "./changes.js";
import { h, icon, replace } from "./dom.js";
import { mountHistory } from "./history.js";
import { mountLibrary } from "./library.js";
import { mountMachine } from "./machine.js";
import { applyTheme, mountAppearance, nextTheme, themeName } from "./theme.js";
import { mountWriter } from "./writer.js";

const TABS = ["ask", "library", "history", "settings", "machine"];
const MOUNTS = {
  "cairn-header": mountHeader,
  "cairn-ask": (node) => mountAsk(node, { goTo }),
  "cairn-library": (node) => mountLibrary(node, { goTo }),
  "cairn-history": (node) => mountHistory(node, { goTo }),
  "cairn-machine": (node) => mountMachine(node, { goTo }),
  "cairn-appearance": mountAppearance,
  "cairn-writer": mountWriter,
};
const mounted = new Map();

function mountHeader(node) {
  const theme = h("button", {
    type: "button",
    class: "icon-button",
    onclick: () => {
      nextTheme();
      showTheme();
    },
  });
  function showTheme() {
    const name = themeName();
    replace(theme, icon({ system: "half", light: "sun", dark: "moon" }[name]));
    theme.title = `Appearance: ${name}`;
    theme.setAttribute("aria-label", theme.title);
  }
  showTheme();
  document.addEventListener("cairn:theme", showTheme);
  const heading = h("h1", { class: "sr-only" });
  const sayView = (view) => replace(heading, `Cairn: ${view}`);
  sayView("ask");
  document.addEventListener("cairn:view", (event) => sayView(event.detail.view));
  const person = h("span", { class: "account" });
  mountAccount(person);
  replace(
    node,
    h(
      "header",
      { class: "brand" },
      h("img", { src: new URL("mark.svg", import.meta.url), alt: "", width: "26", height: "26" }),
      h("span", { class: "brand-name" }, "Cairn"),
      heading,
      h("span", { class: "brand-line" }, "answers that show what was read"),
      person,
      theme,
    ),
  );
}

// Gradio draws and redraws on its own time: fill whatever has appeared and is not ours yet.
function mountAll() {
  for (const [id, mount] of Object.entries(MOUNTS)) {
    const node = document.getElementById(id);
    if (!node || mounted.get(id) === node) continue;
    mounted.set(id, node);
    const own = h("div", { class: "mount" });
    node.append(own);
    mount(own);
  }
  labelTabs();
}

function labelTabs() {
  document.querySelector("#cairn-tabs [role=tablist]")?.setAttribute("aria-label", "Views");
}

function tabButton(name) {
  return document.querySelector(`#cairn-tabs [role=tablist] button[data-tab-id="${name}"]`);
}

export function goTo(view, detail = {}) {
  const button = tabButton(view);
  if (button && button.getAttribute("aria-selected") !== "true") button.click();
  if (view === "ask" && detail.answer) openAnswer(detail.answer);
  const hash = `#/${view}${detail.answer ? `/${detail.answer}` : ""}`;
  if (location.hash !== hash) history.pushState(null, "", hash);
  document.dispatchEvent(new CustomEvent("cairn:view", { detail: { view, ...detail } }));
}

function followHash() {
  const [, view, answer] = location.hash.split("/");
  if (!TABS.includes(view)) return;
  if (!tabButton(view)) {
    setTimeout(followHash, 60);
    return;
  }
  goTo(view, answer && /^[\w-]{1,64}$/.test(answer) ? { answer } : {});
}

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("#cairn-tabs [role=tablist] button[data-tab-id]");
  if (!button || !event.isTrusted) return;
  const view = button.dataset.tabId;
  history.pushState(null, "", `#/${view}`);
  document.dispatchEvent(new CustomEvent("cairn:view", { detail: { view } }));
});
window.addEventListener("popstate", followHash);

new MutationObserver(mountAll).observe(document.documentElement, { childList: true, subtree: true });
applyTheme();
followChanges();
mountAll();
followHash();
