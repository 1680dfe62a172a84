// Elements from data. Text only ever becomes a text node: nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) node.style.setProperty(key, one);
    else if (name === "data") for (const [key, one] of Object.entries(value)) node.dataset[key] = one;
    else if (name === "value" || name === "checked" || name === "disabled") node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

export function replace(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));
  return node;
}

// What somebody is at inside `node`, found again after new children have come: the control of the same id or name, with what
// was typed into it.
function focusIn(node) {
  const active = /** @type {HTMLInputElement | null} */ (document.activeElement);
  if (!active || active === node || !node.contains(active)) return () => {};
  const { id, tagName, value, selectionStart, selectionEnd } = active;
  const label = active.getAttribute("aria-label") || active.textContent;
  const same = (one) => one.tagName === tagName && (id ? one.id === id : (one.getAttribute("aria-label") || one.textContent) === label);
  return () => {
    const found = node.contains(active) ? active : [...node.querySelectorAll(tagName)].find(same);
    if (!found || found === document.activeElement) return;
    found.focus({ preventScroll: true });
    if (found === active || tagName !== "INPUT" || found.type === "checkbox") return;
    found.value = value;
    if (selectionStart !== null) found.setSelectionRange(selectionStart, selectionEnd);
  };
}

// While a pointer is held down everything stays: what is drawn anew or moves between the two is never clicked.
let pressed = false;
const waiting = new Map(); // what is to happen with a node then
document.addEventListener(
  "pointerdown",
  ({ button }) => {
    pressed = button === 0; // a menu takes the letting go of another one
  },
  true,
);
for (const end of ["pointerup", "pointercancel"]) document.addEventListener(end, () => setTimeout(letGo), true);

function letGo() {
  pressed = false;
  const actions = [...waiting.values()];
  waiting.clear();
  for (const action of actions) action();
}

export function onceLetGo(node, action) {
  if (pressed) waiting.set(node, action);
  else {
    waiting.delete(node);
    action();
  }
}

// `replace` for lists that change by themselves: the keyboard stays where it is, and what stays is not even touched.
export function renew(node, ...children) {
  const wanted = children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false);
  onceLetGo(node, () => {
    if (wanted.length === node.childNodes.length && wanted.every((one, at) => one === node.childNodes[at])) return;
    const refocus = focusIn(node);
    node.replaceChildren(...wanted);
    refocus();
  });
}

const ICONS = {
  send: "M4 12h15M13 6l6 6-6 6",
  stop: "M7 7h10v10H7z",
  page: "M7 3h7l4 4v14H7zM14 3v4h4",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  close: "M6 6l12 12M18 6L6 18",
  back: "M15 5l-7 7 7 7",
  "up-small": "M6 15l6-6 6 6",
  "down-small": "M6 9l6 6 6-6",
  grid: "M5 4h6v7H5zM14 4h5v7h-5zM5 14h6v6H5zM14 14h5v6h-5z",
  next: "M9 5l7 7-7 7",
  plus: "M12 5v14M5 12h14",
  link: "M10 14a4 4 0 0 0 6 0l3-3a4 4 0 0 0-6-6l-1 1M14 10a4 4 0 0 0-6 0l-3 3a4 4 0 0 0 6 6l1-1",
  minus: "M5 12h14",
  table: "M4 5h16v14H4zM4 10h16M4 14.5h16M10 5v14",
  width: "M4 12h16M8 8l-4 4 4 4M16 8l4 4-4 4",
  edit: "M5 19h3l10-10-3-3L5 16zM13 8l3 3",
  label: "M4 4h7l9 9-7 7-9-9zM8 8h.01",
  retry: "M19 12a7 7 0 1 1-2-5M19 4v4h-4",
  down: "M12 4v11M7 11l5 5 5-5M5 20h14",
  up: "M12 20V8M7 12l5-5 5 5M5 4h14",
  filter: "M4 6h16M7 12h10M10 18h4",
  copy: "M9 9h10v11H9zM5 15V4h10",
  quote: "M9 7c-3 1-4 3-4 6v4h5v-5H7c0-2 1-3 2-3.5zM18 7c-3 1-4 3-4 6v4h5v-5h-3c0-2 1-3 2-3.5z",
  scale: "M12 4v16M6 20h12M5 8h14M5 8l-2.5 6h5zM19 8l-2.5 6h5z",
  person: "M12 4a4 4 0 1 0 0 8 4 4 0 0 0 0-8M5 20c1-4 4-5.5 7-5.5s6 1.5 7 5.5",
  people:
    "M9 5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7M3 19c.8-3.4 3.2-4.8 6-4.8s5.200 1.400 6 4.800M15.500 5.300a3.500 3.500 0 0 1 0 6.400M17.500 14.700c1.900.6 3 2 3.500 4.300",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8M12 3v2M12 19v2M3 12h2M19 12h2M5.6 5.6l1.4 1.4M17 17l1.4 1.4M18.4 5.6L17 7M7 17l-1.4 1.4",
  moon: "M19 14.5A7.5 7.5 0 0 1 9.5 5 7.5 7.5 0 1 0 19 14.5z",
  half: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
};

export const icon = (name) => svg("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));

// A control whose action still runs begins no second one.
function alone({ onclick, ...attributes }) {
  let running = false;
  const click = async (event) => {
    if (running) return;
    running = true;
    try {
      await onclick(event);
    } finally {
      running = false;
    }
  };
  return { ...attributes, onclick: onclick && click };
}

export const button = (label, attributes, iconName) =>
  h("button", { type: "button", class: "button", ...alone(attributes) }, iconName ? icon(iconName) : null, h("span", {}, label));

export const iconButton = (label, iconName, attributes) =>
  h("button", { type: "button", class: "icon-button", "aria-label": label, title: label, ...alone(attributes) }, icon(iconName));

export const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)}\u202f%`;

export function weight(share) {
  return share >= 0.1 ? percent(share) : percent(share, share >= 0.001 ? 1 : 2);
}

// A probability, for people: nothing is certain or impossible.
export function likely(probability) {
  if (probability < 0.01) return "under 1\u202f%";
  return probability > 0.99 ? "over 99\u202f%" : percent(probability);
}

export function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (count >= 999.5 && at < units.length - 1) {
    count /= 1000;
    at += 1;
  }
  return `${at === 0 || count >= 100 ? Math.round(count) : count.toFixed(1)} ${units[at]}`;
}

export function duration(seconds) {
  if (seconds < 1) return "under a second";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

export const about = (seconds) => (seconds < 1 ? duration(seconds) : `about ${duration(seconds)}`);

export const number = (count) => Math.round(count).toLocaleString("en");
export const plural = (count, one, many) => `${number(count)} ${count === 1 ? one : many || `${one}s`}`;

export function when(text) {
  const date = new Date(text);
  if (!text || Number.isNaN(date.getTime())) return "";
  const today = new Date().toDateString() === date.toDateString();
  return today
    ? date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })
    : date.toLocaleDateString([], { day: "numeric", month: "short", year: "numeric" });
}

// "page 12", "slide 4", "sheet Budget, B17:D17"; "" for files in one part.
export const pagesOf = (passage) => passage.place;

export const nameOf = (thing) => thing.title || thing.source;
export const placeOf = (passage) => [nameOf(passage), pagesOf(passage)].filter(Boolean).join(", ");

// Opens a dialog over the page and removes it once it is closed. What had the keyboard has it again then; where a list was
// drawn anew meanwhile, what stands in its place.
export function openDialog(dialog, closed = () => {}) {
  const refocus = focusIn(document.body);
  dialog.addEventListener("close", () => {
    dialog.remove();
    refocus();
    closed();
  });
  document.body.append(dialog);
  dialog.showModal();
}

let announcer;
export function announce(text) {
  announcer ||= document.body.appendChild(h("div", { class: "sr-only", role: "status", "aria-live": "polite" }));
  announcer.textContent = text;
}

let toasts;
// What has `more` to offer stays until somebody has seen it.
export function toast(text, kind = "", more = null) {
  toasts ||= document.body.appendChild(h("div", { class: "toasts", role: "alert" }));
  const one = h("div", { class: `toast ${kind}`, onclick: () => one.remove() }, text, more && [" ", more]);
  toasts.append(one);
  if (!more) setTimeout(() => one.remove(), kind === "bad" ? 9000 : 4500);
}

// An action on each of some items; what goes wrong with one is told and holds up no other.
export async function oneByOne(items, action) {
  for (const item of [...items]) {
    try {
      await action(item);
    } catch (error) {
      toast(error.message, "bad");
    }
  }
}

// A question before something that cannot be undone. Resolves to true or false.
export function confirm(title, text, yes, no = "Keep") {
  return new Promise((resolve) => {
    const dialog = h(
      "dialog",
      { class: "dialog", "aria-label": title },
      h(
        "form",
        { method: "dialog" },
        h("h2", {}, title),
        h("p", {}, text),
        h(
          "div",
          { class: "row end" },
          h("button", { class: "button quiet", value: "no" }, no),
          h("button", { class: "button danger", value: "yes" }, yes),
        ),
      ),
    );
    openDialog(dialog, () => resolve(dialog.returnValue === "yes"));
  });
}

// One line of text from the person, or several. Resolves to it, or null.
export function askText(title, label, value = "", { type = "text", yes = "Save", lines = false } = {}) {
  return new Promise((resolve) => {
    const input = lines
      ? h("textarea", { class: "input", id: "ask-text", rows: "12" })
      : h("input", {
          class: "input",
          type: type === "url" ? "text" : type,
          inputmode: type,
          value,
          id: "ask-text",
          maxlength: "2000",
          autocomplete: "off",
        });
    const dialog = h(
      "dialog",
      { class: "dialog", "aria-label": title },
      h(
        "form",
        { method: "dialog" },
        h("h2", {}, title),
        h("label", { for: "ask-text" }, label),
        input,
        h(
          "div",
          { class: "row end" },
          h("button", { class: "button quiet", value: "no", formnovalidate: true }, "Cancel"),
          h("button", { class: "button primary", value: "yes" }, yes),
        ),
      ),
    );
    // Enter submits with the first button of a form, which here would cancel.
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !lines) {
        event.preventDefault();
        dialog.close("yes");
      }
    });
    openDialog(dialog, () => resolve(dialog.returnValue === "yes" ? input.value.trim() : null));
    input.select();
  });
}
