// Files on their way in: sending, waiting with an estimate, being read. All of it is what the server says; a refresh changes
// nothing.

import { firstOf, get, post, remove, upload } from "./api.js";
import {
  about,
  announce,
  askText,
  button,
  bytes,
  duration,
  h,
  icon,
  iconButton,
  number,
  oneByOne,
  openDialog,
  plural,
  renew,
  toast,
} from "./dom.js";
import { kindOf, lengthOf } from "./kinds.js";
import { done, percent, STAGES, share } from "./progress.js";

const READ = "PDF, Word, PowerPoint, Excel, OpenDocument, e\u2011mail, web pages, scans and text";
const SENDING_AT_ONCE = 3;
const SHOWN_WAITING = 3; // of the jobs that wait; the others on request
const MOST_JOBS = 500; // that the server lists
const state = {
  uploads: [],
  jobs: [],
  sending: [],
  known: new Set(),
  cancelling: new Set(),
  collections: [],
  ended: null,
  allWaiting: false,
};
const ACTIVE = ["queued", "running"];
const ENDED = ["failed", "cancelled"];
const jobsIn = (states) => state.jobs.filter((job) => states.includes(job.state));
const stagedParts = new Map(); // what a part of that section shows -> the part, kept while it stays as it is
const rows = new Map(); // job id -> { node, update }, kept while a job is at work
const endedRows = new Map(); // what is said of a job that ended -> its row
const cancelAll = button("Cancel all", { class: "button quiet small", onclick: cancelEvery });
const headings = {
  active: h("div", { class: "row head" }, h("h2", { class: "grow" }, "Being read"), cancelAll),
  ended: h(
    "div",
    { class: "row head" },
    h("h2", { class: "grow" }, "Not read"),
    button("Read all of them", { class: "button quiet small", onclick: () => inTurn(jobsNow(ENDED), retry) }, "retry"),
    button("Remove all", {
      class: "button quiet small",
      onclick: () => inTurn(jobsNow(ENDED), (job) => remove(`documents/${job.document_id}`)),
    }),
  ),
};
const more = button("", { class: "button quiet small", onclick: showAllWaiting });
const moreRow = h("div", { class: "item" }, more);
let parts = null;
let turn = Promise.resolve(); // the end of what was last begun for a whole list

// Two sections, filled whenever the server tells of a change.
export function mountFiles() {
  parts = {
    staged: h("section", { class: "staged", "aria-label": "Files to add" }),
    jobs: h("section", { class: "jobs", "aria-label": "Being read" }),
  };
  rows.clear();
  stagedParts.clear();
  drawStaged();
  drawJobs();
  return [parts.staged, parts.jobs];
}

export function knowCollections(collections) {
  state.collections = collections;
}

// Documents that stand among the jobs and need no second row.
export const documentsInJobs = () => new Set(state.jobs.filter((job) => job.state !== "done").map((job) => job.document_id));

document.addEventListener("cairn:files", ({ detail }) => {
  state.uploads = detail.uploads;
  state.jobs = detail.jobs;
  for (const { sent_as } of state.uploads) state.known.add(sent_as);
  tellOfEnded();
  dropSent();
  drawJobs();
});

document.addEventListener("cairn:back", () => state.cancelling.clear());

function tellOfEnded() {
  const done = state.jobs.filter((job) => job.state === "done");
  for (const job of state.ended ? done.filter((one) => !state.ended.has(one.id)) : []) {
    announce(`${job.source} is ready.`);
    if (job.note) toast(`${job.source}: ${job.note}.`);
  }
  state.ended = new Set([...(state.ended ?? []), ...done.map((job) => job.id)]);
}

// Sending and staging

export async function send(files) {
  for (const file of files) state.sending.push({ file, sentAs: newName(), share: 0, begun: false });
  if (files.length) announce(`Sending ${plural(files.length, "file")}.`);
  const next = () => state.sending.find((item) => !item.begun);
  const worker = async () => {
    for (let item = next(); item; item = next()) {
      item.begun = true;
      try {
        const watch = (share) => {
          item.share = share;
          item.node?.update(share);
        };
        await upload(item.file, watch, "uploads", { sent_as: item.sentAs });
      } catch (error) {
        notSent(item, error);
      }
    }
  };
  drawStaged();
  await Promise.all(Array.from({ length: SENDING_AT_ONCE }, worker));
}

// Files dropped on `node` are sent; `onTaken` is called when some were.
export function takeDropped(node, onTaken = () => {}) {
  const over = (on) => (event) => {
    if (![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault();
    node.classList.toggle("over", on);
  };
  for (const name of ["dragenter", "dragover"]) node.addEventListener(name, over(true));
  for (const name of ["dragleave", "drop"]) node.addEventListener(name, over(false));
  node.addEventListener("drop", (event) => {
    const files = [...event.dataTransfer.files];
    if (!files.length) return;
    event.stopPropagation(); // a zone within another takes them alone
    send(files);
    onTaken();
  });
}

// A chooser of files and the zone that they can be dropped on.
export function dropZone(id, onTaken = () => {}) {
  const input = h("input", {
    type: "file",
    multiple: true,
    id,
    class: "sr-only",
    "aria-label": "Choose files",
    onchange: () => {
      send([...input.files]);
      input.value = "";
      onTaken();
    },
  });
  const zone = h(
    "label",
    { class: "drop", for: id },
    icon("up"),
    h("span", {}, h("b", {}, "Drop documents here"), " or ", h("span", { class: "link" }, "choose files")),
    h("span", { class: "soft" }, READ),
  );
  takeDropped(zone, onTaken);
  firstOf("preferences").then(
    ({ uploads }) => {
      input.accept = uploads.accept.join(",");
    },
    () => {}, // whoever needs the server says that it is gone
  );
  const others = h(
    "div",
    { class: "row other-ways" },
    button("Paste text", { class: "button quiet small", onclick: () => pasteText(onTaken) }, "edit"),
    button("Add a web page", { class: "button quiet small", onclick: () => addPage(onTaken) }, "link"),
    button("What can be read", { class: "button quiet small", onclick: tellKinds }),
  );
  return [input, zone, others];
}

async function tellKinds() {
  let uploads;
  try {
    ({ uploads } = await firstOf("preferences"));
  } catch (error) {
    toast(error.message, "bad");
    return;
  }
  openDialog(
    h(
      "dialog",
      { class: "dialog", "aria-label": "What can be read" },
      h(
        "form",
        { method: "dialog" },
        h("h2", {}, "What can be read"),
        h("p", {}, `${uploads.labels.join(", ")}.`),
        h("p", { class: "soft" }, `Up to ${bytes(uploads.file_bytes)} each.`),
        h("div", { class: "row end" }, h("button", { class: "button primary" }, "Close")),
      ),
    ),
  );
}

async function pasteText(onTaken) {
  const given = await askText("Paste text", "Text", "", { yes: "Add it", lines: true });
  if (!given) return;
  const [first] = given.split("\n", 1),
    name =
      first
        .replace(/[^\p{L}\p{N} .,-]+/gu, " ")
        .trim()
        .slice(0, 60) || "Pasted text";
  send([new File([given], `${name}.txt`, { type: "text/plain" })]);
  onTaken();
}

// The server fetches the page, once, because somebody asks for it here.
async function addPage(onTaken) {
  const url = await askText("Add a web page", "Address", "", { type: "url", yes: "Fetch it" });
  if (!url) return;
  const item = { file: { name: url }, sentAs: newName(), share: 0, begun: true };
  state.sending.push(item);
  onTaken();
  drawStaged();
  try {
    await post("uploads/page", { url, sent_as: item.sentAs });
  } catch (error) {
    notSent(item, error);
  }
}

const newName = () => `${Date.now()} ${Math.random()}`;

// What was sent stands there until the server has listed it, perhaps long before it answers the sending itself.
function dropSent() {
  state.sending = state.sending.filter((item) => !state.known.has(item.sentAs));
  drawStaged();
}

function notSent(item, error) {
  const kinds =
    error.code === "unknown_kind" && h("button", { type: "button", class: "plain link", onclick: tellKinds }, "See what can be read.");
  toast(error.message, "bad", kinds);
  state.sending = state.sending.filter((one) => one !== item);
  drawStaged();
}

const isStartable = (one) => one.state !== "refused" && !one.estimate?.already_stored;
const startable = () => state.uploads.filter(isStartable);

// Checking tells of every page: only what then differs is made anew, so that a click or the keyboard never loses it.
function drawStaged() {
  if (!parts) return;
  const { uploads, sending } = state;
  if (!uploads.length && !sending.length) {
    stagedParts.clear();
    renew(parts.staged);
    return;
  }
  const into = /** @type {HTMLSelectElement | null} */ (document.getElementById("into"))?.value || "";
  const facts = startFacts(),
    known = state.collections.map((one) => one.name);
  renew(
    parts.staged,
    part("head", uploads.length > 1, () => stagedHead(uploads.length > 1)),
    sending.map((item) => (item.row ??= sendingItem(item))),
    uploads.map((one) => {
      const row = part(`file ${one.id}`, [one.state, one.estimate, one.problem], () => stagedItem(one));
      if (one.state === "estimating") row.querySelector(".soft").textContent = checking(one);
      return row;
    }),
    startable().length ? part("start", [startable().length, facts, known], () => startRow(into, facts)) : null,
  );
}

function part(name, shown, make) {
  const now = JSON.stringify(shown),
    before = stagedParts.get(name);
  if (before?.shown === now) return before.node;
  const node = make();
  stagedParts.set(name, { shown: now, node });
  return node;
}

function stagedHead(several) {
  return h(
    "div",
    { class: "row head" },
    h("h2", { class: "grow" }, "Ready to be read"),
    several
      ? button("Discard all", {
          class: "button quiet small",
          onclick: () => inTurn(uploadsNow, (one) => remove(`uploads/${one.id}`)),
        })
      : null,
  );
}

function startFacts() {
  const files = startable(),
    checked = files.filter((one) => one.estimate),
    unchecked = files.length - checked.length;
  const sum = (field) => checked.reduce((total, one) => total + one.estimate[field], 0);
  return [
    checked.length ? `Takes ${about(sum("seconds"))}, ${bytes(sum("size_bytes"))} on disk` : "",
    unchecked ? `${checked.length ? "and " : ""}${plural(unchecked, "file")} still being checked` : "",
  ]
    .filter(Boolean)
    .join(", ");
}

function startRow(into, facts) {
  const files = startable();
  return h(
    "div",
    { class: "row start-row" },
    h("label", { for: "into", class: "soft" }, "Into"),
    h("input", { class: "input", id: "into", list: "known-collections", placeholder: "No collection", maxlength: "200", value: into }),
    h(
      "datalist",
      { id: "known-collections" },
      state.collections.filter((one) => one.mine).map((one) => h("option", { value: one.name })),
    ),
    h("span", { class: "soft grow" }, facts),
    button(files.length === 1 ? "Read it" : `Read all ${files.length}`, { class: "button primary", id: "start-all", onclick: startAll }),
  );
}

function startAll() {
  const collection = /** @type {HTMLSelectElement} */ (document.getElementById("into")).value || null;
  const started = inTurn(
    async () => (await uploadsNow()).filter(isStartable),
    (one) => post(`uploads/${one.id}/start`, { collection }),
  );
  document.dispatchEvent(new Event("cairn:started"));
  return started;
}

function sendingItem(item) {
  const bar = progressBar(item.share, "Sending");
  item.node = bar;
  return h("div", { class: "item" }, h("div", { class: "grow" }, h("div", { class: "item-title" }, item.file.name), bar.node));
}

function stagedItem(one) {
  const { estimate } = one;
  const locked = one.state === "refused" && /password|locked|encrypt/i.test(one.problem);
  const estimated = () =>
    estimate.already_stored
      ? "Already in the library: it need not be read again."
      : [
          lengthOf({ kind: kindOf(one.name), pages: estimate.pages }),
          `takes ${about(estimate.seconds)}`,
          `${bytes(estimate.size_bytes)} on disk`,
        ]
          .filter(Boolean)
          .join(" · ");
  return h(
    "div",
    { class: "item", data: { upload: one.id } },
    h(
      "div",
      { class: "grow" },
      h("div", { class: "item-title" }, one.name),
      one.state === "refused"
        ? h("div", { class: "bad-text" }, one.problem)
        : h("div", { class: "soft" }, one.state === "estimating" ? checking(one) : estimated()),
    ),
    locked
      ? button("Enter password", { class: "button small", "aria-label": `Enter password of ${one.name}`, onclick: () => unlock(one) })
      : null,
    iconButton(`Discard ${one.name}`, "close", { onclick: () => oneByOne([one], () => remove(`uploads/${one.id}`)) }),
  );
}

// A file of many pages takes as long to look through as it will to have its text extracted.
function checking(one) {
  const looked = one.pages ? ` ${percent(share(one.pages_done, one.pages))}, page ${one.pages_done + 1} of ${one.pages}` : "";
  return `${bytes(one.size_bytes)} · checking it…${looked}`;
}

async function unlock(one) {
  const password = await askText("This document is locked", `Password of ${one.name}`, "", { type: "password", yes: "Read it" });
  if (password) oneByOne([one], () => post(`uploads/${one.id}/start`, { password }));
}

// Jobs

function drawJobs() {
  if (!parts) return;
  const active = jobsIn(ACTIVE).reverse();
  const ended = jobsIn(ENDED);
  for (const { id } of ended) state.cancelling.delete(id);
  for (const id of rows.keys()) if (!active.some((job) => job.id === id)) rows.delete(id);
  const waiting = active.filter((job) => job.state === "queued");
  const hidden = state.allWaiting || waiting.length <= SHOWN_WAITING + 1 ? [] : waiting.slice(SHOWN_WAITING);
  cancelAll.hidden = active.length < 2;
  if (!waiting.length) state.allWaiting = false;
  more.lastChild.textContent = `${number(hidden.length)} more are waiting: show them`;
  renew(
    parts.jobs,
    active.length ? headings.active : null,
    active
      .filter((job) => !hidden.includes(job))
      .map((job) => {
        if (!rows.has(job.id)) rows.set(job.id, activeJob(job));
        const row = rows.get(job.id);
        row.update(job);
        return row.node;
      }),
    hidden.length ? moreRow : null,
    ended.length ? headings.ended : null,
    ended.map((job) => {
      const key = `${job.id} ${job.state} ${job.error}`;
      if (!endedRows.has(key)) endedRows.set(key, endedJob(job));
      return endedRows.get(key);
    }),
  );
}

function showAllWaiting() {
  state.allWaiting = true;
  drawJobs();
}

// What is cancelled stays in the list until it is removed, and goes on where it stopped if it is wanted after all.
function cancelEvery() {
  for (const { id } of jobsIn(ACTIVE)) state.cancelling.add(id);
  drawJobs();
  return inTurn(jobsNow(ACTIVE), cancel);
}

async function cancel({ id }) {
  state.cancelling.add(id);
  drawJobs();
  await post(`jobs/${id}/cancel`);
}

// Waits for what was begun for a whole list before, and asks what is in it then: the page may not have heard of it yet.
function inTurn(listNow, action) {
  turn = turn.then(() => oneByOne([null], async () => oneByOne(await listNow(), action)));
  return turn;
}

const jobsNow = (states) => async () => (await get("jobs", { limit: MOST_JOBS })).jobs.filter((job) => states.includes(job.state));
const uploadsNow = async () => (await get("uploads")).uploads;

const isCancelling = (job) => job.cancelling || state.cancelling.has(job.id);

function facts(job) {
  if (isCancelling(job)) return "Cancelling…";
  if (job.state === "queued") return "Waiting";
  const known = job.eta_seconds !== null && job.eta_seconds !== undefined;
  return [
    STAGES[job.stage] || "Working",
    job.stage === "extracting" && job.pages <= 1 && job.seconds >= 2 ? `for ${duration(job.seconds)}` : "",
    job.pages > 1 ? `${percent(done(job))}, page ${Math.min(job.pages_done + 1, job.pages)} of ${job.pages}` : "",
    job.tokens_per_second ? `${number(job.tokens_per_second)} tokens/s` : "",
    known ? `${duration(job.eta_seconds)} left` : "",
  ]
    .filter(Boolean)
    .join(" · ");
}

// One row for as long as the job is at work: what changes is changed in it, so that a click or the keyboard never loses it.
function activeJob({ id, source }) {
  const bar = progressBar(0, source),
    words = h("div", { class: "soft" });
  const stop = button("Cancel", {
    class: "button quiet small",
    "aria-label": `Cancel ${source}`,
    onclick: () => oneByOne([{ id }], cancel),
  });
  const node = h(
    "div",
    { class: "item job", data: { job: id } },
    h("div", { class: "grow" }, h("div", { class: "item-title" }, source), bar.node, words),
    stop,
  );
  const update = (job) => {
    node.dataset.state = job.state;
    bar.update(done(job), job.state === "running" && !done(job));
    words.textContent = facts(job);
    stop.disabled = isCancelling(job);
  };
  return { node, update };
}

function endedJob(job) {
  const failed = job.state === "failed";
  return h(
    "div",
    { class: "item job", data: { job: job.id, state: job.state } },
    h(
      "div",
      { class: "grow" },
      h("div", { class: "item-title" }, job.source),
      h("div", { class: failed ? "bad-text" : "soft" }, failed ? job.error : "Cancelled."),
    ),
    failed
      ? button("Try again", { class: "button small", "aria-label": `Try ${job.source} again`, onclick: () => oneByOne([job], retry) })
      : button(
          "Read it after all",
          { class: "button small", "aria-label": `Read ${job.source} after all`, onclick: () => oneByOne([job], retry) },
          "retry",
        ),
    iconButton(`Remove ${job.source}`, "close", { onclick: () => oneByOne([job], () => remove(`documents/${job.document_id}`)) }),
  );
}

async function retry(job) {
  const locked = /password|locked|encrypt/i.test(job.error || "");
  const password = locked
    ? await askText("This document is locked", `Password of ${job.source}`, "", { type: "password", yes: "Try again" })
    : null;
  if (locked && !password) return;
  await post(`jobs/${job.id}/retry`, password ? { password } : {});
  state.cancelling.delete(job.id);
}

// { node, update(share, unknown) }
function progressBar(share, label) {
  const fill = h("div", {});
  const node = h(
    "div",
    { class: "progress", role: "progressbar", "aria-label": label, "aria-valuemin": "0", "aria-valuemax": "100" },
    fill,
  );
  const update = (now, unknown = false) => {
    const percent = Math.round(100 * now);
    node.classList.toggle("unknown", unknown);
    if (unknown) node.removeAttribute("aria-valuenow");
    else node.setAttribute("aria-valuenow", percent);
    fill.style.width = unknown ? "" : `${percent}%`;
  };
  update(share);
  return { node, update };
}
