// Who words answers: chosen and tried in the settings, and named below the question.

import { firstOf, get, latest, post, put } from "./api.js";
import { button, h, plural, renew, replace } from "./dom.js";

const changed = () => document.dispatchEvent(new CustomEvent("cairn:writer"));

// One line below the question, where passages leave this machine or answers can only be quoted.
export function writerLine(onWriter) {
  const line = h("div", { class: "writer-line soft", id: "writer-line" });
  const show = (writer) => {
    onWriter(writer);
    line.classList.toggle("advice", !writer.problem && !writer.name);
    renew(line, lineOf(writer));
  };
  const draw = latest(
    (first) => (first ? firstOf("writer") : get("writer")),
    show,
    () => {}, // the next question will say that the server is gone
  );
  document.addEventListener("cairn:writer", () => draw());
  document.addEventListener("cairn:view", (event) => event.detail.view === "ask" && draw());
  document.addEventListener("cairn:back", () => draw());
  draw(true);
  return line;
}

function lineOf(writer) {
  if (writer.problem) return writer.problem;
  if (writer.leaves_machine) return `Passages are sent to ${writer.name}, on another machine.`;
  if (writer.name) return `Answers are written by ${writer.name}, on this machine.`;
  return writer.own_words ? "" : writer.how_to;
}

// The same in the settings, where the writer is named.
const stateOf = (writer) =>
  lineOf(writer) === writer.how_to && writer.may_choose
    ? "Answers are quoted. To have them written, name a server such as Ollama, or a model."
    : lineOf(writer);

export function mountWriter(node) {
  const name = h("input", {
    id: "writer-name",
    class: "input",
    type: "text",
    maxlength: "500",
    placeholder: "http://localhost:11434/v1#qwen3:4b",
    "aria-label": "Writer: address of a server, folder of a checkpoint, or its name on the hub",
    list: "writer-models",
    onchange: () => offerModels(),
  });
  const models = h("datalist", { id: "writer-models" });
  const key = h("input", {
    id: "writer-key",
    class: "input",
    type: "password",
    maxlength: "1000",
    autocomplete: "off",
    "aria-label": "Key of the server, if it needs one",
    onchange: () => offerModels(),
  });
  let touched = false; // what somebody types or tries is not replaced by what comes from the server meanwhile
  name.addEventListener("input", () => {
    touched = true;
  });
  const state = h("div", { class: "soft", id: "writer-state", role: "status" });
  const save = button("Save", { class: "button small", id: "writer-save", onclick: () => run(saved) });
  const test = button("Test", { class: "button quiet small", id: "writer-test", onclick: () => run(tried) });

  const choice = () => ({ name: name.value, key: key.value || null });
  let asked = 0; // what was asked last may say how it went, and nothing that was asked before it

  // What the server at the address offers can be chosen behind it.
  async function offerModels() {
    const [address] = name.value.trim().split("#");
    if (!/^https?:/.test(address)) return;
    const turn = ++asked;
    try {
      const { models: found } = await post("writer/models", { ...choice(), name: address });
      const here = name.value.trim().startsWith(address);
      if (here) replace(models, ...found.map((one) => h("option", { value: `${address}#${one}` })));
      if (found.length && turn === asked)
        replace(state, `The server has ${plural(found.length, "model")}: ${found.slice(0, 8).join(", ")}${found.length > 8 ? "…" : ""}`);
    } catch (error) {
      if (turn === asked) replace(state, error.message);
    }
  }

  async function saved() {
    const given = choice();
    const writer = await put("writer", given);
    touched = name.value !== given.name; // by somebody who types on
    if (key.value === (given.key ?? "")) key.value = "";
    sayKey(writer);
    return writer;
  }

  async function tried() {
    const trial = await post("writer/test", name.disabled ? { name: "" } : choice());
    return { ...trial, said: trial.problem || `It wrote: “${trial.text}” First word after ${trial.first_token_seconds.toFixed(1)} s.` };
  }

  async function run(action) {
    asked += 1;
    touched = save.disabled = test.disabled = true;
    replace(state, "One moment…");
    try {
      const result = await action();
      replace(state, result.said ?? (stateOf(result) || "Saved."));
      changed();
    } catch (error) {
      replace(state, error.message);
    }
    test.disabled = false;
    save.disabled = name.disabled;
  }

  function sayKey(writer) {
    key.placeholder = writer.has_key ? "The key that is kept" : "Key, if the server needs one";
  }

  async function draw() {
    const turn = ++asked;
    try {
      const writer = await get("writer");
      if (turn !== asked || (touched && writer.may_choose)) return;
      name.value = (writer.may_choose ? writer.chosen : writer.name) || "";
      name.disabled = key.disabled = save.disabled = !writer.may_choose;
      sayKey(writer);
      replace(state, stateOf(writer));
    } catch (error) {
      if (turn === asked) replace(state, error.message);
    }
  }

  replace(
    node,
    h("fieldset", { class: "writer" }, h("legend", {}, "Writer"), h("div", { class: "row" }, name, key, save, test), models, state),
  );
  document.addEventListener("cairn:back", draw);
  draw();
}
