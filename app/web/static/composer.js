// The field for a question, and what goes with every question: which documents may be read, and whether they are quoted.

import { button, h, icon, nameOf, number, renew, replace, toast } from "./dom.js";
import { chooseScope, describeScope, emptyScope, isNarrowed, keepScope, keptScope, within } from "./scope.js";
import { writerLine } from "./writer.js";

const LONG_QUESTION = 600; // characters

// { scope, quote, preferred, mostCharacters }: what is chosen outlives redraws of the page.
const kept = keptScope();
const chosen = { scope: kept.scope, quote: undefined, preferred: undefined, mostCharacters: 4000 }; // until the server has said
let parts = null;

// `on`: submit(question), stop(), scope() when other documents are chosen, fresh() for a new conversation.
export function composer(on) {
  const input = h("textarea", {
    id: "question",
    class: "question-input",
    rows: "1",
    placeholder: "Ask your documents…",
    "aria-label": "Question",
    "aria-describedby": "question-length",
    oninput: () => {
      grow();
      checkLength();
    },
    onkeydown: (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        submit();
      }
    },
  });
  const send = h("button", { type: "button", class: "send", id: "send", "aria-label": "Ask", onclick: submitOrStop }, icon("send"));
  const scope = h("button", { type: "button", class: "scope", id: "scope", onclick: pickScope });
  const quote = h(
    "button",
    { type: "button", class: "quote", id: "quote", hidden: true, onclick: toggleQuote },
    icon("quote"),
    h("span", {}, "Word for word"),
  );
  const fresh = button(
    "New conversation",
    { class: "button quiet small", id: "new-conversation", "aria-label": "New conversation", onclick: on.fresh },
    "plus",
  );
  const length = h("div", { class: "question-length", id: "question-length", "aria-live": "polite" });
  parts = { input, send, scope, quote, fresh, length, on, running: false };
  drawChoices();
  if (chosen.scope === kept.scope) nameKept();
  return h(
    "div",
    { class: "composer" },
    h("div", { class: "composer-box" }, input, send),
    length,
    h("div", { class: "row composer-foot" }, scope, quote, h("span", { class: "grow" }), fresh),
    writerLine((writer) => {
      parts.quote.hidden = !writer.name && !writer.own_words; // nothing but quotations can be had
    }),
  );
}

export const currentScope = () => chosen.scope;

// What is sent with a question.
export const questionOptions = () => ({ quote: chosen.quote ?? undefined, within: within(chosen.scope) });

// When the settings change, the switch follows.
export function takePreferences(preferences) {
  chosen.mostCharacters = preferences.question_characters;
  const untouched = chosen.preferred === undefined && chosen.quote === undefined;
  const changed = chosen.preferred !== undefined && chosen.preferred !== preferences.quote;
  if (untouched || changed) chosen.quote = preferences.quote;
  chosen.preferred = preferences.quote;
  drawChoices();
}

// As soon as the field is in sight: another view takes a moment to go.
export function focusQuestion() {
  if (parts.input.offsetParent) parts.input.focus();
  else requestAnimationFrame(focusQuestion);
}

// `begun`: whether there is a conversation that could be left for a new one.
export function showConversation(begun) {
  parts.fresh.hidden = !begun;
}

// While an answer is being written the button stops it.
export function showRunning(running) {
  parts.running = running;
  replace(parts.send, icon(running ? "stop" : "send"));
  parts.send.setAttribute("aria-label", running ? "Stop" : "Ask");
  parts.send.classList.toggle("stop", running);
  checkLength();
}

function grow() {
  const { input } = parts;
  input.style.height = "auto";
  input.style.height = `${Math.min(input.scrollHeight, 220)}px`;
}

// What is too long is said while it is typed; nothing is cut.
function checkLength() {
  const count = parts.input.value.trim().length,
    most = chosen.mostCharacters;
  const over = count > most;
  replace(
    parts.length,
    over
      ? `This is ${number(count - most)} characters longer than a question may be (${number(most)}). Shorten it to send it.`
      : count > LONG_QUESTION
        ? `${number(count)} of ${number(most)} characters. A single sentence is answered faster and better.`
        : null,
  );
  parts.length.classList.toggle("bad-text", over);
  parts.send.disabled = over && !parts.running;
}

function drawChoices() {
  renew(parts.scope, icon("filter"), h("span", {}, describeScope(chosen.scope)));
  parts.quote.setAttribute("aria-pressed", chosen.quote === null ? "mixed" : String(Boolean(chosen.quote)));
  parts.quote.title =
    chosen.quote === null
      ? "Whatever suits the model: click to copy answers word for word"
      : "Copy the answer word for word from the documents";
  parts.scope.classList.toggle("narrowed", isNarrowed(chosen.scope));
}

function toggleQuote() {
  chosen.quote = chosen.quote !== true;
  drawChoices();
}

async function pickScope() {
  const scope = await chooseScope(chosen.scope);
  if (scope) takeScope(scope);
  parts.scope.focus();
}

// Questions are put to this document alone from now on.
export function askOnly(document) {
  takeScope({ ...emptyScope(), documents: new Map([[document.id, nameOf(document)]]) });
}

function takeScope(scope) {
  chosen.scope = scope;
  keepScope(scope);
  drawChoices();
  parts.on.scope();
}

// After a reload the documents chosen before have their names again, and those deleted meanwhile are left out.
async function nameKept() {
  const before = chosen.scope;
  const count = before.documents.size + before.collections.size;
  if (!count) return;
  try {
    const named = await kept.named;
    if (chosen.scope !== before) return; // others were chosen meanwhile
    takeScope(named);
    const left = named.documents.size + named.collections.size;
    if (left < count) toast(`Some of what was chosen is gone.${left ? "" : " Questions now ask all documents."}`, "bad");
  } catch (error) {
    toast(error.message, "bad");
  }
}

function submitOrStop() {
  if (parts.running) parts.on.stop();
  else submit();
}

function submit() {
  const question = parts.input.value.trim();
  if (!question || parts.running || question.length > chosen.mostCharacters) return;
  parts.input.value = "";
  grow();
  checkLength();
  parts.on.submit(question);
}
