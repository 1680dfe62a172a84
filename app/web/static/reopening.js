// Conversations that are opened again: from their address, from the history, or after the page was left in the middle of an answer.

import { get } from "./api.js";
import { Reading } from "./reading.js";

const PENDING = "cairn:pending"; // the question that is being answered in this tab
const DURING = "during-"; // before a conversation's id, in the address, while an answer is being written
const MOST_TURNS = 20;
const LOOKS = 8; // for an answer that the server has just been told to stop
const BETWEEN_MS = 700;

export const addressDuring = (conversation) => `${DURING}${conversation}`;

export function rememberPending(turn, conversation) {
  sessionStorage.setItem(PENDING, JSON.stringify({ conversation, question: turn.question, again: turn.again }));
}

export const forgetPending = () => sessionStorage.removeItem(PENDING);

const turnOf = (answer) => ({ question: answer.question, words: [], reading: new Reading(answer), error: "", node: null });

async function answersOf(conversation) {
  const heads = (await get("answers", { conversation_id: conversation, limit: MOST_TURNS })).answers.reverse();
  return Promise.all(heads.map((head) => get(`answers/${encodeURIComponent(head.id)}`)));
}

// { conversation, turns, chosen } of an answer's id, or of what `addressDuring` gave.
export async function reopened(id) {
  if (id.startsWith(DURING)) return left(id.slice(DURING.length));
  const answer = await get(`answers/${encodeURIComponent(id)}`);
  const conversation = answer.conversation_id;
  const answers = conversation ? await answersOf(conversation) : [];
  if (!answers.some((one) => one.id === id)) answers.push(answer);
  const turns = answers.map(turnOf);
  return { conversation, turns, chosen: turns.find((turn) => turn.reading.answer.id === id) };
}

// A conversation that was left before its last answer was complete. What was written until then is kept by the server.
async function left(conversation) {
  const pending = JSON.parse(sessionStorage.getItem(PENDING) ?? "null");
  const waited = pending?.conversation === conversation ? pending : null;
  const complete = (answers) => !waited || answers.at(-1)?.question === waited.question;
  let answers = await answersOf(conversation);
  for (let look = 1; look < LOOKS && !complete(answers); look += 1) {
    await new Promise((done) => setTimeout(done, BETWEEN_MS));
    answers = await answersOf(conversation);
  }
  const turns = answers.map(turnOf);
  if (complete(answers)) forgetPending();
  else {
    turns.push({ question: waited.question, again: waited.again, words: [], reading: null, error: "", left: true, node: null });
  }
  return { conversation, turns, chosen: turns.at(-1) ?? null };
}
