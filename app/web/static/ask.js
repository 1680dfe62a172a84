// The conversation: put a question, watch the answer come, stop it, ask on. The state outlives redraws of the page.

import { tokenSpan } from "./answer.js";
import { ask, firstOf, get, latest, post, remove } from "./api.js";
import { composer, currentScope, focusQuestion, questionOptions, showConversation, showRunning, takePreferences } from "./composer.js";
import { announce, h, renew, replace, toast } from "./dom.js";
import { mountEvidence } from "./evidence.js";
import { takeDropped } from "./files.js";
import { Reading } from "./reading.js";
import { addressDuring, forgetPending, rememberPending, reopened } from "./reopening.js";
import { isNarrowed } from "./scope.js";
import { drawTurn } from "./turn.js";
import { suggestedQuestions, welcome } from "./welcome.js";

const state = {
  conversation: null,
  turns: [],
  chosen: null,
  running: null,
  lowShare: 0.25,
  documents: null,
  suggestions: [],
  goTo: (_view) => {},
  keepAddress: () => {},
};
let parts = null;

const newId = () => [...crypto.getRandomValues(new Uint8Array(16))].map((one) => one.toString(16).padStart(2, "0")).join("");

export function mountAsk(node, { goTo, keepAddress }) {
  Object.assign(state, { goTo, keepAddress });
  const turns = h("div", { class: "turns" });
  const evidence = h("aside", {
    class: "evidence",
    id: "evidence",
    "aria-label": "Evidence",
    onkeydown: (event) => {
      if (event.key !== "Escape" || !evidence.classList.contains("open")) return;
      evidence.classList.remove("open");
      state.chosen?.node?.querySelector(".open-evidence")?.focus();
    },
  });
  const field = composer({
    submit: (question) => put(question),
    stop,
    scope: () => {
      suggest([]); // these are of other documents
      refreshSuggestions();
    },
    fresh: startOver,
  });
  const begun = Boolean(parts);
  parts = { node, turns, evidence };
  replace(node, h("div", { class: "ask" }, h("section", { class: "conversation", "aria-label": "Conversation" }, turns, field), evidence));
  takeDropped(node, addFromHere);
  drawTurns();
  refreshFacts(!begun);
}

document.addEventListener("cairn:view", (event) => {
  if (event.detail.view === "ask" && parts) refreshFacts();
});

// Preferences, the number of documents, and what can be asked; `first`: as they came with the page.
const refreshFacts = latest(
  (first) =>
    Promise.all(
      first
        ? ["preferences", "documents", "suggestions"].map(firstOf)
        : [get("preferences"), get("documents", { limit: 1 }).then(({ total }) => total)],
    ),
  ([preferences, documents, suggestions]) => {
    state.lowShare = preferences.low_share;
    state.documents = documents;
    takePreferences(preferences);
    if (suggestions && !isNarrowed(currentScope())) suggest(suggestions);
    else refreshSuggestions();
  },
  () => {}, // the next question will say that the server is gone
);

const refreshSuggestions = latest(
  () => (state.turns.length ? state.suggestions : suggestedQuestions(currentScope())),
  suggest,
  () => {}, // the next question will say what is wrong
);

function suggest(suggestions) {
  state.suggestions = suggestions;
  if (!state.turns.length) renew(parts.turns, hero());
}

document.addEventListener("cairn:back", () => parts && refreshFacts());

document.addEventListener("cairn:library", () => {
  if (parts?.node.offsetParent && !state.turns.length) refreshFacts();
});

function startOver() {
  state.running?.abort();
  clear();
  state.goTo("ask");
  focusQuestion();
}

// An empty conversation as one went back to; false while an answer is being written, which stays in sight.
export function clearForBack() {
  if (state.running) return false;
  opening += 1;
  if (state.turns.length) clear();
  return true;
}

function clear() {
  opening += 1;
  Object.assign(state, { conversation: null, turns: [], chosen: null });
  drawTurns();
  refreshFacts();
}

async function stop() {
  const turn = state.turns.at(-1);
  announce("Stopping.");
  if (!turn?.askId) {
    state.running?.abort();
    return;
  }
  try {
    await post(`ask/${turn.askId}/stop`);
  } catch {
    state.running?.abort();
  }
}

// `again`: { anyway, within } where an earlier question is put once more in another way; `before`: what has to be done first.
async function put(question, again = {}, before = () => {}) {
  opening += 1;
  state.conversation ||= newId();
  const turn = { question, again, words: [], reading: null, status: "Searching the memory…", error: "", askId: null, node: null };
  state.turns.push(turn);
  state.chosen = turn;
  const controller = new AbortController();
  state.running = controller;
  showRunning(true);
  drawTurns();
  rememberPending(turn, state.conversation);
  state.keepAddress();
  if (state.turns.length > 1) turn.node.scrollIntoView({ block: "start", behavior: "smooth" });
  try {
    await before();
    await ask(
      {
        question,
        conversation_id: state.conversation,
        ...questionOptions(),
        ...again,
      },
      {
        started: ({ ask_id, ahead }) => {
          turn.askId = ask_id;
          if (ahead) setStatus(turn, place(ahead));
        },
        waiting: ({ ahead }) => setStatus(turn, place(ahead)),
        progress: ({ done, total, note }) => setStatus(turn, `${done} of ${total} parts done: ${note}.`),
        token: (token) => addWord(turn, token),
        answer: (answer) => {
          turn.reading = new Reading(answer);
        },
        error: ({ error }) => {
          turn.error = error.message;
        },
      },
      controller.signal,
    );
    if (!turn.reading && !turn.error) turn.error = "The answer was interrupted. Ask again.";
  } catch (error) {
    turn.error = error.name === "AbortError" ? "Stopped." : error.message;
  }
  if (turn.reading) forgetPending(); // a page that is left fails its requests, too
  if (state.running === controller) {
    state.running = null;
    showRunning(false);
  }
  if (!state.turns.includes(turn)) return;
  redraw(turn);
  drawEvidence();
  announce(turn.error || `Answer finished: ${turn.reading.answer.text}`);
  if (!parts.node.offsetParent) toast(turn.reading ? "Your answer is ready on the Ask page." : turn.error, turn.reading ? "" : "bad");
  state.keepAddress();
}

// An earlier answer gives way to another one to the same question: a refusal that is answered after all, or an answer that was
// interrupted and is gone on with.
function putAgain(turn, again) {
  if (state.running) return;
  const { answer } = turn.reading;
  state.turns = state.turns.filter((one) => one !== turn);
  put(turn.question, { ...again, within: answer.settings.scope }, () => remove(`answers/${answer.id}`));
}

// A question without an answer is put once more, in its place.
function putInstead(turn) {
  if (state.running) return;
  state.turns = state.turns.filter((one) => one !== turn);
  put(turn.question, turn.again);
}

function setStatus(turn, text) {
  turn.status = text;
  if (turn.statusNode) turn.statusNode.textContent = text;
}

function addWord(turn, token) {
  if (turn.statusNode) {
    turn.statusNode.remove();
    turn.statusNode = null;
  }
  const span = tokenSpan(token, turn.words.length);
  turn.words.push(token);
  turn.stream?.append(span);
}

function drawTurns() {
  if (!parts) return;
  if (!state.turns.length) {
    replace(parts.turns, hero());
  } else {
    replace(
      parts.turns,
      state.turns.map((turn) => {
        turn.node = h("article", { class: "turn" });
        redraw(turn);
        return turn.node;
      }),
    );
  }
  showConversation(state.turns.length > 0);
  parts.node.classList.toggle("empty", !state.turns.length);
  drawEvidence();
}

// What can be done with a turn where it stands.
const onTurn = (turn) => ({
  choose: (event) => {
    choose(turn);
    // What is pointed at in an answer shows in its evidence, also where that is a sheet from below.
    if (isSheet() && event?.target.closest?.(".answer-text")) parts.evidence.classList.add("open");
  },
  again: () => {
    if (!state.running) put(turn.question);
  },
  correct: (question) => {
    if (!state.running) put(question);
  },
  anyway: () => putAgain(turn, { anyway: true }),
  goOn: () => putAgain(turn, { anyway: turn.reading.answer.settings.anyway ?? false }),
  instead: () => putInstead(turn),
  evidence: () => {
    choose(turn);
    parts.evidence.classList.add("open"); // a sheet from below where there is no room beside the answer
    parts.evidence.querySelector(".sheet-close").focus({ preventScroll: true });
  },
  deleted: () => {
    state.turns = state.turns.filter((one) => one !== turn);
    state.chosen = state.turns.at(-1) || null;
    drawTurns();
  },
});

function isSheet() {
  const close = parts.evidence.querySelector(".sheet-close");
  return Boolean(close) && getComputedStyle(close).display !== "none";
}

function redraw(turn) {
  drawTurn(turn, { chosen: turn === state.chosen, lowShare: state.lowShare, on: onTurn(turn) });
}

function choose(turn) {
  if (!turn.reading || state.chosen === turn) return;
  state.chosen = turn;
  for (const one of state.turns) one.node.classList.toggle("current", one === turn);
  drawEvidence();
  state.keepAddress();
}

// A refusal shows what is near itself; where a writer failed, what it was given is all there is.
const hasEvidence = ({ tokens, writer, passages }) => tokens.length > 0 || Boolean(writer && passages.length);

function drawEvidence() {
  const reading = state.chosen?.reading;
  parts.evidence.hidden = !state.turns.length || Boolean(reading && !hasEvidence(reading.answer));
  if (reading) mountEvidence(parts.evidence, reading);
  else
    replace(
      parts.evidence,
      state.turns.length
        ? h(
            "div",
            { class: "evidence-wait" },
            h("h2", { class: "evidence-title" }, "What the model read"),
            state.running ? [1, 2, 3].map(() => h("div", { class: "ghost" })) : h("p", { class: "soft" }, "No evidence for this question."),
          )
        : null,
    );
}

function place(ahead) {
  if (!ahead) return "Searching the memory…";
  return ahead === 1 ? "Waiting: one question is ahead." : `Waiting: ${ahead} questions are ahead.`;
}

// Files that were brought to this page are chosen and started among the documents; then people come back.
function addFromHere() {
  state.adding = true;
  state.goTo("library");
}

document.addEventListener("cairn:started", () => {
  if (!state.adding) return;
  state.adding = false;
  state.goTo("ask");
  focusQuestion();
});

const hero = () =>
  welcome({
    documents: state.documents,
    suggestions: state.suggestions,
    onAdd: addFromHere,
    onAsk: (question) => {
      if (!state.running) put(question);
    },
  });

// What stands in the address for what is shown, so that a reload and Back bring it again.
export function openId() {
  const newest = state.turns.at(-1);
  if (newest && !newest.reading) return addressDuring(state.conversation);
  return (state.chosen ?? newest)?.reading?.answer.id ?? "";
}

// Open a stored answer with the whole conversation that it belongs to, unless another one is opened or asked for meanwhile.
let opening = 0;
export async function openAnswer(id) {
  const mine = ++opening;
  if (id === openId()) return;
  const here = state.turns.find((turn) => turn.reading?.answer.id === id);
  if (here) {
    choose(here);
    return;
  }
  if (state.running) {
    toast("An answer is being written. Stop it, or wait for it.");
    state.keepAddress();
    return;
  }
  try {
    const found = await reopened(id);
    if (mine !== opening) return;
    Object.assign(state, found);
    drawTurns();
    if (state.turns.length > 1) state.chosen?.node?.scrollIntoView({ block: "start" });
  } catch (error) {
    if (mine !== opening) return;
    toast(error.message, "bad");
  }
  state.keepAddress();
}
