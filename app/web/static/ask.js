// The conversation: put a question, watch the answer come, stop it, ask on. The state outlives redraws of the page.

import { interruptedNote, mountAnswer, tokenSpan } from "./answer.js";
import { ask, get, post, remove } from "./api.js";
import { announce, button, h, icon, number, renew, replace, toast } from "./dom.js";
import { mountEvidence } from "./evidence.js";
import { takeDropped } from "./files.js";
import { Reading } from "./reading.js";
import { addressDuring, forgetPending, rememberPending, reopened } from "./reopening.js";
import { chooseScope, describeScope, emptyScope, within } from "./scope.js";
import { suggestedQuestions, welcome } from "./welcome.js";
import { writerLine } from "./writer.js";

const LONG_QUESTION = 600; // characters

const state = {
  conversation: null,
  turns: [],
  chosen: null,
  scope: emptyScope(),
  running: null,
  lowShare: 0.25,
  mostCharacters: 4000, // until the server has said
  quote: undefined,
  documents: null,
  suggestions: [],
  goTo: () => {},
  keepAddress: () => {},
};
let parts = null;

const newId = () => [...crypto.getRandomValues(new Uint8Array(16))].map((one) => one.toString(16).padStart(2, "0")).join("");

export function mountAsk(node, { goTo, keepAddress }) {
  Object.assign(state, { goTo, keepAddress });
  const input = h("textarea", {
    id: "question",
    class: "question-input",
    rows: "1",
    placeholder: "Ask your documents…",
    "aria-label": "Question",
    "aria-describedby": "question-length",
    oninput: () => {
      grow(input);
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
    {
      type: "button",
      class: "quote",
      id: "quote",
      title: "Copy the answer word for word from the documents",
      onclick: () => {
        state.quote = state.quote !== true;
        drawScope();
      },
    },
    icon("quote"),
    h("span", {}, "Word for word"),
  );
  const fresh = button(
    "New conversation",
    { class: "button quiet small", id: "new-conversation", "aria-label": "New conversation", onclick: startOver },
    "plus",
  );
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
  const length = h("div", { class: "question-length", id: "question-length", "aria-live": "polite" });
  const composer = h(
    "div",
    { class: "composer" },
    h("div", { class: "composer-box" }, input, send),
    length,
    h("div", { class: "row composer-foot" }, scope, quote, h("span", { class: "grow" }), fresh),
    writerLine(),
  );
  parts = { node, input, send, scope, quote, fresh, turns, evidence, length };
  replace(
    node,
    h("div", { class: "ask" }, h("section", { class: "conversation", "aria-label": "Conversation" }, turns, composer), evidence),
  );
  takeDropped(node, () => state.goTo("library"));
  drawScope();
  drawTurns();
  refreshFacts();
}

document.addEventListener("cairn:view", (event) => {
  if (event.detail.view !== "ask" || !parts) return;
  refreshFacts();
});

async function refreshFacts() {
  try {
    const [preferences, documents] = await Promise.all([get("preferences"), get("documents", { limit: 1 })]);
    state.lowShare = preferences.low_share;
    state.mostCharacters = preferences.question_characters;
    const untouched = state.preferred === undefined && state.quote === undefined;
    if (untouched || (state.preferred !== undefined && state.preferred !== preferences.quote)) state.quote = preferences.quote;
    state.preferred = preferences.quote; // when the settings change, the switch follows
    drawScope();
    state.documents = documents.total;
    await refreshSuggestions();
  } catch {
    // the next question will say that the server is gone
  }
}

async function refreshSuggestions() {
  if (state.turns.length) return;
  state.suggestions = await suggestedQuestions(state.scope);
  if (!state.turns.length) renew(parts.turns, hero());
}

document.addEventListener("cairn:library", () => {
  if (parts?.node.offsetParent && !state.turns.length) refreshFacts();
});

function grow(input) {
  input.style.height = "auto";
  input.style.height = `${Math.min(input.scrollHeight, 220)}px`;
}

// What is too long is said while it is typed; nothing is cut.
function checkLength() {
  const count = parts.input.value.trim().length,
    most = state.mostCharacters;
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
  parts.send.disabled = over && !state.running;
}

function drawScope() {
  replace(parts.scope, icon("filter"), h("span", {}, describeScope(state.scope)));
  parts.quote.setAttribute("aria-pressed", state.quote === null ? "mixed" : String(Boolean(state.quote)));
  parts.quote.title =
    state.quote === null
      ? "Whatever suits the model: click to copy answers word for word"
      : "Copy the answer word for word from the documents";
  parts.scope.classList.toggle(
    "narrowed",
    Object.values(within(state.scope)).some((one) => one.length),
  );
}

async function pickScope() {
  const chosen = await chooseScope(state.scope);
  if (chosen) {
    state.scope = chosen;
    drawScope();
    refreshSuggestions().catch((error) => toast(error.message, "bad"));
  }
  parts.scope.focus();
}

function startOver() {
  state.running?.abort();
  state.conversation = null;
  state.turns = [];
  state.chosen = null;
  drawTurns();
  state.goTo("ask");
  parts.input.focus();
}

function submitOrStop() {
  if (state.running) stop();
  else submit();
}

function submit() {
  const question = parts.input.value.trim();
  if (!question || state.running || question.length > state.mostCharacters) return;
  parts.input.value = "";
  grow(parts.input);
  checkLength();
  put(question);
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

// `again`: { anyway, within } where an earlier question is put once more in another way.
async function put(question, again = {}) {
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
    await ask(
      {
        question,
        conversation_id: state.conversation,
        quote: state.quote ?? undefined,
        within: within(state.scope),
        ...again,
      },
      {
        started: ({ ask_id, ahead }) => {
          turn.askId = ask_id;
          if (ahead) setStatus(turn, ahead === 1 ? "Waiting: one question is ahead." : `Waiting: ${ahead} questions are ahead.`);
        },
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
  drawTurn(turn);
  drawEvidence();
  announce(turn.error || `Answer finished: ${turn.reading.answer.text}`);
  if (!parts.node.offsetParent) toast(turn.reading ? "Your answer is ready on the Ask page." : turn.error, turn.reading ? "" : "bad");
  state.keepAddress();
}

// An earlier answer gives way to another one to the same question: a refusal that is answered after all, or an answer that was
// interrupted and is gone on with.
async function putAgain(turn, again) {
  if (state.running) return;
  const { answer } = turn.reading;
  try {
    await remove(`answers/${answer.id}`);
  } catch (error) {
    toast(error.message, "bad");
    return;
  }
  state.turns = state.turns.filter((one) => one !== turn);
  put(turn.question, { ...again, within: answer.settings.scope });
}

// A question without an answer is put once more, in its place.
function putInstead(turn) {
  if (state.running) return;
  state.turns = state.turns.filter((one) => one !== turn);
  put(turn.question, turn.again);
}

function showRunning(running) {
  replace(parts.send, icon(running ? "stop" : "send"));
  parts.send.setAttribute("aria-label", running ? "Stop" : "Ask");
  parts.send.classList.toggle("stop", running);
  checkLength();
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
        drawTurn(turn);
        return turn.node;
      }),
    );
  }
  parts.fresh.hidden = !state.turns.length;
  parts.node.classList.toggle("empty", !state.turns.length);
  drawEvidence();
}

function drawTurn(turn) {
  const body = h("div", { class: "turn-body" });
  const question = h(
    "h2",
    {
      class: "question",
      tabindex: turn.reading ? "0" : undefined,
      onclick: () => choose(turn),
      onkeydown: (event) => event.key === "Enter" && choose(turn),
    },
    turn.question,
  );
  replace(turn.node, question, body);
  body.onclick = () => choose(turn); // whatever of an earlier answer is touched, its evidence comes
  turn.node.classList.toggle("current", turn === state.chosen);
  if (turn.reading) {
    mountAnswer(body, turn.reading, {
      lowShare: state.lowShare,
      onAgain: () => {
        if (!state.running) put(turn.question);
      },
      onAnyway: () => putAgain(turn, { anyway: true }),
      onContinue: () => putAgain(turn, { anyway: turn.reading.answer.settings.anyway ?? false }),
      onEvidence: () => {
        choose(turn);
        parts.evidence.classList.add("open"); // a sheet from below where there is no room beside the answer
        parts.evidence.querySelector(".sheet-close").focus({ preventScroll: true });
      },
      onDeleted: () => {
        state.turns = state.turns.filter((one) => one !== turn);
        state.chosen = state.turns.at(-1) || null;
        drawTurns();
      },
    });
  } else if (turn.left) {
    replace(
      body,
      interruptedNote(() => putInstead(turn)),
    );
  } else if (turn.error) {
    replace(
      body,
      turn.words.length ? h("div", { class: "answer-text" }, turn.words.map(tokenSpan)) : null,
      h("div", { class: "verdict bad", role: "alert" }, turn.error),
      h(
        "div",
        { class: "actions" },
        button("Ask again", {
          class: "button small",
          onclick: () => {
            putInstead(turn);
          },
        }),
      ),
    );
  } else {
    turn.stream = h(
      "div",
      { class: "answer-text streaming", role: "log", "aria-live": "polite", "aria-label": "Answer" },
      turn.words.map(tokenSpan),
    );
    turn.statusNode = turn.words.length ? null : h("div", { class: "status-line", role: "status" }, turn.status);
    replace(body, turn.stream, turn.statusNode);
  }
}

function choose(turn) {
  if (!turn.reading || state.chosen === turn) return;
  state.chosen = turn;
  for (const one of state.turns) one.node.classList.toggle("current", one === turn);
  drawEvidence();
  state.keepAddress();
}

function drawEvidence() {
  const reading = state.chosen?.reading;
  parts.evidence.hidden = !state.turns.length || Boolean(reading && !reading.answer.tokens.length); // a refusal shows what is near itself
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

const hero = () =>
  welcome({
    documents: state.documents,
    suggestions: state.suggestions,
    onAdd: () => state.goTo("library"),
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

// Open a stored answer with the whole conversation that it belongs to.
export async function openAnswer(id) {
  if (id === openId()) return;
  const here = state.turns.find((turn) => turn.reading?.answer.id === id);
  if (here) {
    choose(here);
    return;
  }
  if (state.running) {
    toast("An answer is being written. Stop it, or wait for it.");
    return;
  }
  try {
    Object.assign(state, await reopened(id));
    drawTurns();
    if (state.turns.length > 1) state.chosen?.node?.scrollIntoView({ block: "start" });
  } catch (error) {
    toast(error.message, "bad");
  }
  state.keepAddress();
}
