// What the machine can do and what is wrong: whatever the doctor reports, as readable lists.

import { get, latest } from "./api.js";
import { button, bytes, duration, h, number, replace } from "./dom.js";
import { drawFolders, mountFolders } from "./folders.js";

let parts = null;

export function mountMachine(node) {
  const body = h("div", { class: "machine-body" });
  parts = { body };
  replace(
    node,
    h(
      "div",
      { class: "machine" },
      h(
        "div",
        { class: "row head" },
        h("p", { class: "soft grow" }, "What this machine can do, what the library contains, and any problems."),
        button("Look again", { class: "button small", onclick: draw }, "retry"),
      ),
      body,
      mountFolders(),
      h(
        "p",
        { class: "soft" },
        "For programs: ",
        h("a", { href: new URL("../docs", import.meta.url) }, "HTTP API"),
        ", and MCP tools at ",
        h("code", {}, "/mcp"),
        ".",
      ),
    ),
  );
  draw();
}

document.addEventListener("cairn:view", (event) => {
  if (event.detail.view === "machine" && parts) {
    draw();
    drawFolders();
  }
});

document.addEventListener("cairn:back", () => {
  if (parts) draw();
});

const draw = latest(
  () => get("machine"),
  show,
  (error) => replace(parts.body, h("div", { class: "verdict bad" }, error.message)),
);

function show(report) {
  const problems = [report.problems, report.wrong, report.warnings].flat().filter((one) => typeof one === "string" && one);
  const simple = Object.entries(report).filter(([key, value]) => !["problems", "wrong", "warnings"].includes(key) && !isGroup(value));
  const groups = Object.entries(report).filter(([key, value]) => !["problems", "wrong", "warnings"].includes(key) && isGroup(value));
  replace(
    parts.body,
    problems.length
      ? h(
          "div",
          { class: "verdict bad" },
          h(
            "ul",
            {},
            problems.map((one) => h("li", {}, one)),
          ),
        )
      : h("div", { class: "verdict good" }, "Nothing is wrong."),
    h(
      "div",
      { class: "cards" },
      simple.length ? card("Disk", simple) : null,
      groups.map(([key, value]) => card(words(key), Object.entries(value))),
    ),
  );
}

const isGroup = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

const card = (title, entries) =>
  h(
    "section",
    { class: "card" },
    h("h2", {}, title),
    h(
      "dl",
      {},
      entries.map(([key, value]) => [h("dt", {}, words(key)), h("dd", {}, shown(key, value))]),
    ),
  );

const words = (key) => {
  const text = key
    .replace(/_(bytes|seconds)(?=_|$)/, "")
    .replace(/^num_/, "")
    .replaceAll("_", " ")
    .replace(/\b(cpu|gpu|kv)(s?)\b/g, (_, short, many) => short.toUpperCase() + many);
  return text.charAt(0).toUpperCase() + text.slice(1);
};

function shown(key, value) {
  if (value === null || value === undefined || value === "") return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") {
    if (/(^|_)bytes(_|$)/.test(key)) return bytes(value);
    if (key.endsWith("seconds")) return duration(value);
    return Number.isInteger(value) ? number(value) : value.toPrecision(3);
  }
  if (Array.isArray(value))
    return value.length ? value.map((one) => (typeof one === "object" ? JSON.stringify(one) : String(one))).join(", ") : "–";
  if (typeof value === "object")
    return h(
      "dl",
      { class: "inner" },
      Object.entries(value).map(([name, one]) => [h("dt", {}, words(name)), h("dd", {}, shown(name, one))]),
    );
  if (String(value).startsWith("sha256:")) return h("span", { title: value }, `${value.slice(7, 19)}…`);
  return String(value);
}
