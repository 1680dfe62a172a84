// One question of a conversation with what became of it: an answer, an error, or what has been written so far.

import { interruptedNote, mountAnswer, tokenSpan } from "./answer.js";
import { button, h, replace } from "./dom.js";

// Fills `turn.node`. `on`: choose, again, correct, anyway, goOn, instead, evidence, deleted.
export function drawTurn(turn, { chosen, lowShare, on }) {
  const body = h("div", { class: "turn-body" });
  const question = h(
    "h2",
    {
      class: "question",
      tabindex: turn.reading ? "0" : undefined,
      onclick: on.choose,
      onkeydown: (event) => event.key === "Enter" && on.choose(),
    },
    turn.question,
  );
  replace(turn.node, question, body);
  body.addEventListener("click", on.choose, true); // whatever of an earlier answer is touched, its evidence comes first
  turn.node.classList.toggle("current", chosen);
  if (turn.reading) {
    mountAnswer(body, turn.reading, {
      lowShare,
      onAgain: on.again,
      onCorrect: on.correct,
      onAnyway: on.anyway,
      onContinue: on.goOn,
      onEvidence: on.evidence,
      onDeleted: on.deleted,
    });
  } else if (turn.left) replace(body, interruptedNote(on.instead));
  else if (turn.error) replace(body, failed(turn, on));
  else {
    turn.stream = h(
      "div",
      { class: "answer-text streaming", role: "log", "aria-live": "polite", "aria-label": "Answer" },
      turn.words.map(tokenSpan),
    );
    turn.statusNode = turn.words.length ? null : h("div", { class: "status-line", role: "status" }, turn.status);
    replace(body, turn.stream, turn.statusNode);
  }
}

const failed = (turn, on) => [
  turn.words.length ? h("div", { class: "answer-text" }, turn.words.map(tokenSpan)) : null,
  h("div", { class: "verdict bad", role: "alert" }, turn.error),
  h("div", { class: "actions" }, button("Ask again", { class: "button small", onclick: on.instead })),
];
