// Fills the columns that the Gradio page provides, and keeps the address bar in step with what is shown.

import { mountAccount } from "./account.js";
import { clearForBack, mountAsk, openAnswer, openId } from "./ask.js";
import { followChanges } from "./changes.js";
import { focusQuestion } from "./composer.js";
import { h, icon, onceLetGo, replace } from "./dom.js";
import { mountHistory } from "./history.js";
import { mountLibrary } from "./library.js";
import { mountMachine } from "./machine.js";
import { applyTheme, mountAppearance, nextTheme, themeName } from "./theme.js";
import { onceBack } from "./viewer.js";
import { FRAME_STYLES, MARK } from "./words.js";
import { mountWriter } from "./writer.js";

const TABS = ["ask", "library", "history", "settings", "machine"];
const MOUNTS = {
  "cairn-header": mountHeader,
  "cairn-ask": (node) => mountAsk(node, { goTo, keepAddress }),
  "cairn-library": (node) => mountLibrary(node, { goTo }),
  "cairn-history": (node) => mountHistory(node, { goTo }),
  "cairn-machine": (node) => mountMachine(node),
  "cairn-appearance": mountAppearance,
  "cairn-writer": mountWriter,
};
const mounted = new Map();
const LATER = { ask: "Ask", library: "Library", history: "History", settings: "Settings", machine: "Machine" };
let shell = null; // what is shown until Gradio has drawn its frame: { node, own: Map }

// Gradio fetches no style sheet that the page has a link to. These have come as one: the links only say so.
for (const href of FRAME_STYLES) document.head.append(h("link", { rel: "stylesheet", href, disabled: true }));

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
      h("img", { src: MARK, alt: "", width: "26", height: "26" }),
      h("span", { class: "brand-name" }, "Cairn"),
      heading,
      h("span", { class: "brand-line" }, "answers that show what was read"),
      person,
      theme,
    ),
  );
}

// Gradio's frame takes a while to come: until then the header, and the Ask page if that is wanted, stand by themselves. They
// move into the frame as they are, with what was typed meanwhile.
function mountShell() {
  const [, view = ""] = location.hash.split("/");
  const own = new Map(["cairn-header", "cairn-ask"].map((id) => [id, h("div", { class: "mount" })]));
  const names = Object.entries(LATER).map(([name, label]) => h("span", { class: name === (view || "ask") ? "now" : "" }, label));
  const node = h("main", { id: "cairn-shell" }, own.get("cairn-header"), h("div", { class: "shell-tabs", "aria-hidden": "true" }, names));
  if (view === "" || view === "ask") node.append(own.get("cairn-ask"));
  else own.delete("cairn-ask");
  document.body.prepend(node);
  shell = { node, own };
  for (const [id, mount] of own) MOUNTS[id](mount);
}

function moveIntoFrame() {
  if (!shell || !tabButton("machine") || ![...shell.own.keys()].every((id) => document.getElementById(id))) return;
  const active = /** @type {HTMLInputElement | null} */ (document.activeElement),
    typed = active && shell.node.contains(active) ? [active.selectionStart, active.selectionEnd] : null;
  for (const [id, own] of shell.own) {
    const column = document.getElementById(id);
    mounted.set(id, column);
    column.append(own);
  }
  shell.node.remove();
  shell = null;
  if (!typed) return;
  active.focus({ preventScroll: true });
  if (typed[0] !== undefined && typed[0] !== null) active.setSelectionRange(typed[0], typed[1]);
}

// Gradio draws and redraws on its own time: fill whatever has appeared and is not ours yet.
function mountAll() {
  moveIntoFrame();
  if (shell) return;
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

/** @returns {HTMLButtonElement | null} */
function tabButton(name) {
  return document.querySelector(`#cairn-tabs [role=tablist] button[data-tab-id="${name}"]`);
}

// The Ask page's address names the conversation that it shows.
const hashOf = (view, answer = view === "ask" ? openId() : "") => `#/${view}${answer ? `/${answer}` : ""}`;

// Whether the Ask page is in sight, also before Gradio's frame has come.
const askIsShown = () => (shell ? shell.own.has("cairn-ask") : tabButton("ask")?.getAttribute("aria-selected") === "true");

// The conversation that is shown has changed: its address follows, in the same entry of the browser's history.
function keepAddress() {
  if (!askIsShown()) return;
  const hash = hashOf("ask");
  if (location.hash !== hash) history.replaceState(history.state, "", hash);
}

function goTo(view, detail = {}) {
  onceBack(() => go(view, detail));
}

function go(view, detail) {
  const button = tabButton(view);
  if (!button && view !== "ask") {
    // Gradio's frame is not there yet: the address says where to go once it is.
    history.pushState(null, "", hashOf(view));
    followHash();
    return;
  }
  showView(view, detail);
  const hash = hashOf(view, detail.answer);
  if (location.hash !== hash) history.pushState(null, "", hash);
}

function showView(view, detail = {}) {
  const button = tabButton(view);
  if (button && button.getAttribute("aria-selected") !== "true") button.click();
  if (view === "ask" && detail.answer) openAnswer(detail.answer);
  tellView(view, detail);
}

// The Ask page stands there from the beginning: nobody needs to be told.
let told = "ask";
let settingsOpened = false,
  settingsMissing = false;
function tellView(view, detail = {}) {
  if (view === "settings" && settingsMissing) loadAnew();
  settingsOpened ||= view === "settings";
  const news = view !== told || detail.answer;
  told = view;
  if (news) document.dispatchEvent(new CustomEvent("cairn:view", { detail: { view, ...detail } }));
}

// Gradio draws the controls of Settings when it is opened first. While the server was away none came, and none will by itself.
document.addEventListener("cairn:back", () => {
  settingsMissing = settingsOpened && !document.getElementById("setting-state");
  if (settingsMissing && told === "settings") loadAnew();
});

const KEPT = "cairn:conversation"; // shown on the Ask page when another view had to be loaded anew
function loadAnew() {
  sessionStorage.setItem(KEPT, openId());
  location.reload();
}

function reopenKept() {
  const id = sessionStorage.getItem(KEPT);
  sessionStorage.removeItem(KEPT);
  if (id) openAnswer(id);
}

// Back and Forward: an address without a view, as the page was opened with, is that of Ask.
function followBack() {
  const [, view = "ask", answer] = location.hash.split("/");
  if (view === "ask" && !answer && !clearForBack()) history.replaceState(history.state, "", hashOf("ask"));
  if (location.hash) followHash();
  else showView("ask");
}

function followHash() {
  const [, view, answer] = location.hash.split("/");
  if (!TABS.includes(view)) return;
  if (!tabButton(view)) {
    setTimeout(followHash, 60);
    return;
  }
  const detail = answer && /^[\w-]{1,64}$/.test(answer) ? { answer } : {};
  if (view === "ask" && !detail.answer && openId()) history.replaceState(history.state, "", hashOf("ask")); // Back adds no entry
  goTo(view, detail);
}

// The tab of the frame that somebody is at.
/** @returns {HTMLElement | null | undefined} */
const tabAt = (event) => event.target.closest?.("#cairn-tabs [role=tablist] button[data-tab-id]");

document.addEventListener("click", (event) => {
  const button = tabAt(event);
  if (!button || !event.isTrusted) return;
  const view = button.dataset.tabId;
  onceBack(() => {
    const hash = hashOf(view);
    if (location.hash !== hash) history.pushState(null, "", hash);
  });
  tellView(view);
});
// Tabs are walked with the arrows, as those of other programs.
document.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const at = TABS.indexOf(tabAt(event)?.dataset.tabId);
  if (!step || at < 0) return;
  const view = TABS[(at + step + TABS.length) % TABS.length];
  event.preventDefault();
  goTo(view);
  tabButton(view).focus();
});
window.addEventListener("popstate", followBack);

new MutationObserver(() => (shell ? onceLetGo(shell.node, mountAll) : mountAll())).observe(document.documentElement, {
  childList: true,
  subtree: true,
});
applyTheme();
followChanges();
mountShell();
// On a telephone the keyboard would come up and cover what can be done here.
if (/^(#\/(ask)?)?$/.test(location.hash) && matchMedia("(hover: hover)").matches) focusQuestion();
mountAll();
reopenKept();
followHash();
