// The library: files on their way in, jobs, documents. All of it is what the server says; a refresh changes nothing.

import { share, sharingOf } from "./account.js";
import { get, patch, post, remove, upload } from "./api.js";
import {
  announce,
  askText,
  button,
  bytes,
  confirm,
  duration,
  h,
  icon,
  iconButton,
  nameOf,
  number,
  plural,
  replace,
  toast,
  when,
} from "./dom.js";
import { openViewer } from "./viewer.js";

const PAGE = 50,
  SENDING_AT_ONCE = 3;
const SORTS = [
  ["added", "Newest first"],
  ["title", "Title"],
  ["source", "File name"],
  ["size", "Largest first"],
  ["pages", "Most pages"],
];

const view = { search: "", collection: "", sort: "added", offset: 0, selected: new Set(), collections: [], kinds: "" };
const sending = []; // { file, share } while a file travels
const seenDone = new Set();
let parts = null,
  timer = null,
  firstPoll = true;

export function mountLibrary(node) {
  const input = h("input", {
    type: "file",
    multiple: true,
    id: "file-input",
    class: "sr-only",
    "aria-label": "Choose files",
    onchange: () => {
      send([...input.files]);
      input.value = "";
    },
  });
  const drop = h(
    "label",
    { class: "drop", for: "file-input" },
    icon("up"),
    h("span", {}, h("b", {}, "Drop documents here"), " or ", h("span", { class: "link" }, "choose files")),
    h("span", { class: "soft", id: "kinds" }, view.kinds),
  );
  for (const name of ["dragenter", "dragover"])
    drop.addEventListener(name, (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
  for (const name of ["dragleave", "drop"])
    drop.addEventListener(name, (event) => {
      event.preventDefault();
      drop.classList.remove("over");
    });
  drop.addEventListener("drop", (event) => send([...event.dataTransfer.files]));
  const staged = h("section", { class: "staged", "aria-label": "Files to add" });
  const jobs = h("section", { class: "jobs", "aria-label": "Being read" });
  const search = h("input", {
    class: "input",
    type: "search",
    placeholder: "Find by name or title…",
    "aria-label": "Find documents",
    value: view.search,
    oninput: () => {
      view.search = search.value;
      view.offset = 0;
      soon();
    },
  });
  const sort = h(
    "select",
    {
      class: "input",
      "aria-label": "Sort",
      onchange: () => {
        view.sort = sort.value;
        view.offset = 0;
        drawDocuments();
      },
    },
    SORTS.map(([value, label]) => h("option", { value, selected: value === view.sort }, label)),
  );
  const collections = h("div", { class: "collections", role: "group", "aria-label": "Collections" });
  const list = h("section", { class: "documents", "aria-label": "Documents" });
  const bulk = h("div", { class: "bulk", hidden: true });
  parts = { node, staged, jobs, collections, list, bulk, drop };
  replace(
    node,
    h("div", { class: "library" }, input, drop, staged, jobs, collections, h("div", { class: "row tools" }, search, sort), bulk, list),
  );
  start();
}

let soonTimer;
const soon = () => {
  clearTimeout(soonTimer);
  soonTimer = setTimeout(drawDocuments, 180);
};

document.addEventListener("cairn:view", (event) => {
  if (event.detail.view === "library" && parts) start();
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && parts) poll();
});

async function start() {
  drawDocuments();
  drawCollections();
  poll();
  if (view.kinds) return;
  try {
    const { uploads } = await get("preferences");
    view.kinds = `${uploads.labels.join(", ")} · up to ${bytes(uploads.file_bytes)} each`;
    const kinds = document.getElementById("kinds");
    if (kinds) kinds.textContent = view.kinds;
    const input = document.getElementById("file-input");
    if (input) input.accept = uploads.accept.join(",");
  } catch {
    // the list below says that the server is gone
  }
}

async function poll() {
  clearTimeout(timer);
  const visible = parts?.node.isConnected && parts.node.offsetParent !== null;
  let active = false;
  if (visible && !document.hidden) {
    try {
      const [{ uploads }, { jobs }] = await Promise.all([get("uploads"), get("jobs", { limit: 60 })]);
      active =
        uploads.some((one) => one.state === "estimating") ||
        jobs.some((job) => ["queued", "running"].includes(job.state)) ||
        sending.length > 0;
      drawStaged(uploads);
      drawJobs(jobs);
    } catch (error) {
      replace(parts.jobs, h("div", { class: "verdict bad" }, error.message));
    }
  }
  timer = setTimeout(poll, active ? 1000 : 4000);
}

// Sending and staging

async function send(files) {
  for (const file of files) sending.push({ file, share: 0, begun: false });
  if (files.length) announce(`Sending ${plural(files.length, "file")}.`);
  const worker = async () => {
    for (let one = sending.find((item) => !item.begun); one; one = sending.find((item) => !item.begun)) {
      const item = one;
      item.begun = true;
      try {
        await upload(item.file, (share) => {
          item.share = share;
        });
      } catch (error) {
        toast(error.message, "bad");
      }
      sending.splice(sending.indexOf(item), 1);
      await poll();
    }
  };
  poll();
  await Promise.all(Array.from({ length: SENDING_AT_ONCE }, worker));
}

function drawStaged(uploads) {
  if (!uploads.length && !sending.length) {
    replace(parts.staged);
    return;
  }
  if (parts.staged.contains(document.activeElement) && document.activeElement.tagName === "INPUT") return; // somebody types
  const ready = uploads.filter((one) => one.state === "ready" && !one.estimate.already_stored);
  const total = ready.reduce((sum, one) => ({ seconds: sum.seconds + one.estimate.seconds, bytes: sum.bytes + one.estimate.size_bytes }), {
    seconds: 0,
    bytes: 0,
  });
  const collection = h("input", {
    class: "input",
    id: "into",
    list: "known-collections",
    placeholder: "No collection",
    maxlength: "200",
    value: document.getElementById("into")?.value || "",
  });
  replace(
    parts.staged,
    h(
      "div",
      { class: "row head" },
      h("h2", { class: "grow" }, "Ready to be read"),
      uploads.length > 1
        ? button("Discard all", { class: "button quiet small", onclick: () => each(uploads, (one) => remove(`uploads/${one.id}`)) })
        : null,
    ),
    sending.map((one) =>
      h(
        "div",
        { class: "item" },
        h("div", { class: "grow" }, h("div", { class: "item-title" }, one.file.name), progressBar(one.share, "Sending")),
      ),
    ),
    uploads.map(stagedItem),
    ready.length
      ? h(
          "div",
          { class: "row start-row" },
          h("label", { for: "into", class: "soft" }, "Into"),
          collection,
          h(
            "datalist",
            { id: "known-collections" },
            view.collections.filter((one) => one.mine).map((one) => h("option", { value: one.name })),
          ),
          h("span", { class: "soft grow" }, `About ${duration(total.seconds)}, ${bytes(total.bytes)} on disk`),
          button(ready.length === 1 ? "Read it" : `Read all ${ready.length}`, {
            class: "button primary",
            id: "start-all",
            onclick: () => each(ready, (one) => post(`uploads/${one.id}/start`, { collection: collection.value || null })),
          }),
        )
      : null,
  );
}

function stagedItem(one) {
  const { estimate } = one;
  const discard = iconButton(`Discard ${one.name}`, "close", { onclick: () => each([one], () => remove(`uploads/${one.id}`)) });
  const locked = one.state === "refused" && /password|locked|encrypt/i.test(one.problem);
  return h(
    "div",
    { class: "item", data: { upload: one.id } },
    h(
      "div",
      { class: "grow" },
      h("div", { class: "item-title" }, one.name),
      one.state === "estimating"
        ? h("div", { class: "soft" }, `${bytes(one.size_bytes)} · checking it…`)
        : one.state === "refused"
          ? h("div", { class: "bad-text" }, one.problem)
          : h(
              "div",
              { class: "soft" },
              `${plural(estimate.pages, "page")} · ${estimate.exact ? "" : "about "}${number(estimate.tokens)} tokens · takes about ${duration(estimate.seconds)} · ${bytes(estimate.size_bytes)} on disk`,
              estimate.already_stored ? " · already in the library" : "",
            ),
    ),
    locked ? button("Enter password", { class: "button small", onclick: () => unlock(one) }) : null,
    discard,
  );
}

async function unlock(one) {
  const password = await askText("This document is locked", `Password of ${one.name}`, "", { type: "password", yes: "Read it" });
  if (password) each([one], () => post(`uploads/${one.id}/start`, { password }));
}

async function each(items, action) {
  for (const item of items) {
    try {
      await action(item);
    } catch (error) {
      toast(error.message, "bad");
    }
  }
  await poll();
  drawDocuments();
  drawCollections();
}

// Jobs

function drawJobs(jobs) {
  const active = jobs.filter((job) => ["queued", "running"].includes(job.state)).reverse();
  const failed = jobs
    .filter((job) => ["failed", "cancelled"].includes(job.state))
    .filter((job) => !dismissed().has(job.id))
    .slice(0, 8);
  let finished = false;
  for (const job of jobs.filter((one) => one.state === "done")) {
    if (!seenDone.has(job.id)) {
      seenDone.add(job.id);
      finished ||= !firstPoll;
      if (!firstPoll) announce(`${job.source} is ready.`);
      if (!firstPoll && job.note) toast(`${job.source}: ${job.note}.`);
    }
  }
  firstPoll = false;
  if (finished) {
    drawDocuments();
    drawCollections();
  }
  replace(
    parts.jobs,
    active.length ? h("h2", {}, "Being read") : null,
    active.map(activeJob),
    failed.length ? h("h2", {}, "Not read") : null,
    failed.map(failedJob),
  );
}

function activeJob(job) {
  const share = job.tokens ? job.tokens_done / job.tokens : job.pages ? job.pages_done / job.pages : 0;
  const facts =
    job.state === "queued"
      ? "Waiting"
      : [
          { extracting: "Extracting the text", reading: "Reading", saving: "Saving" }[job.stage] || "Working",
          job.pages ? `page ${Math.min(job.pages_done + 1, job.pages)} of ${job.pages}` : "",
          job.tokens_per_second ? `${number(job.tokens_per_second)} tokens/s` : "",
          job.eta_seconds !== null && job.eta_seconds !== undefined ? `${duration(job.eta_seconds)} left` : "",
        ]
          .filter(Boolean)
          .join(" · ");
  return h(
    "div",
    { class: "item job", data: { job: job.id, state: job.state } },
    h(
      "div",
      { class: "grow" },
      h("div", { class: "item-title" }, job.source),
      progressBar(share, job.source),
      h("div", { class: "soft" }, facts),
    ),
    button("Cancel", {
      class: "button quiet small",
      "aria-label": `Cancel ${job.source}`,
      onclick: () => each([job], () => post(`jobs/${job.id}/cancel`)),
    }),
  );
}

function failedJob(job) {
  return h(
    "div",
    { class: "item job", data: { job: job.id, state: job.state } },
    h(
      "div",
      { class: "grow" },
      h("div", { class: "item-title" }, job.source),
      h("div", { class: job.state === "failed" ? "bad-text" : "soft" }, job.state === "failed" ? job.error : "Cancelled."),
    ),
    button("Try again", { class: "button small", "aria-label": `Try ${job.source} again`, onclick: () => retry(job) }),
    iconButton(`Hide ${job.source}`, "close", {
      onclick: () => {
        dismiss(job.id);
        poll();
      },
    }),
  );
}

async function retry(job) {
  const locked = /password|locked|encrypt/i.test(job.error || "");
  const password = locked
    ? await askText("This document is locked", `Password of ${job.source}`, "", { type: "password", yes: "Try again" })
    : null;
  if (locked && !password) return;
  each([job], () => post(`jobs/${job.id}/retry`, password ? { password } : {}));
}

const DISMISSED = "cairn-hidden-jobs";
function dismissed() {
  try {
    return new Set(JSON.parse(localStorage.getItem(DISMISSED) || "[]"));
  } catch {
    return new Set();
  }
}
const dismiss = (id) => localStorage.setItem(DISMISSED, JSON.stringify([...dismissed(), id].slice(-200)));

function progressBar(share, label) {
  const now = Math.round(100 * share);
  return h(
    "div",
    { class: "progress", role: "progressbar", "aria-label": label, "aria-valuemin": "0", "aria-valuemax": "100", "aria-valuenow": now },
    h("div", { style: { width: `${now}%` } }),
  );
}

// Documents

async function drawCollections() {
  try {
    view.collections = (await get("collections")).collections;
  } catch {
    return;
  }
  if (view.collection && !view.collections.some((one) => one.id === view.collection)) view.collection = "";
  const chip = (id, label, count) =>
    h(
      "button",
      {
        type: "button",
        class: "chip",
        "aria-pressed": String(view.collection === id),
        onclick: () => {
          view.collection = id;
          view.offset = 0;
          drawCollections();
          drawDocuments();
        },
      },
      label,
      count === undefined ? null : h("span", { class: "count" }, count),
    );
  const chosen = view.collections.find((one) => one.id === view.collection);
  replace(
    parts.collections,
    chip("", "All"),
    view.collections.map((one) => chip(one.id, one.mine ? one.name : `${one.name} · ${one.owner || "everybody"}`, one.documents)),
    iconButton("New collection", "plus", { onclick: newCollection }),
    chosen?.mine && chosen.owner
      ? iconButton(`Share ${chosen.name}`, "people", {
          onclick: async () => {
            if (await share(chosen)) drawCollections();
          },
        })
      : null,
    chosen?.mine
      ? [
          iconButton(`Rename ${chosen.name}`, "edit", { onclick: () => renameCollection(chosen) }),
          iconButton(`Remove ${chosen.name}`, "trash", { onclick: () => dropCollection(chosen) }),
        ]
      : null,
    chosen && sharingOf(chosen) ? h("span", { class: "soft sharing" }, sharingOf(chosen)) : null,
  );
}

async function newCollection() {
  const name = await askText("New collection", "Name");
  if (name) each([name], () => post("collections", { name }));
}

async function renameCollection(one) {
  const name = await askText("Rename collection", "Name", one.name);
  if (name && name !== one.name) each([one], () => patch(`collections/${one.id}`, { name }));
}

async function dropCollection(one) {
  if (await confirm(`Remove “${one.name}”?`, "Its documents stay, in no collection.", "Remove"))
    each([one], () => remove(`collections/${one.id}`));
}

let drawing = 0;
async function drawDocuments() {
  const mine = ++drawing;
  let found;
  try {
    found = await get("documents", {
      search: view.search,
      collection_id: view.collection,
      sort: view.sort,
      limit: PAGE,
      offset: view.offset,
    });
  } catch (error) {
    if (mine === drawing) replace(parts.list, h("div", { class: "verdict bad" }, error.message));
    return;
  }
  if (mine !== drawing) return;
  if (!found.documents.length && view.offset) {
    view.offset = 0;
    drawDocuments();
    return;
  }
  const pages = Math.ceil(found.total / PAGE),
    at = view.offset / PAGE;
  const turn = (step) => () => {
    view.offset += step * PAGE;
    drawDocuments();
    parts.node.querySelector(".tools").scrollIntoView();
  };
  replace(
    parts.list,
    found.documents.length
      ? h("div", { class: "soft summary" }, `${plural(found.total, "document")}, ${bytes(found.size_bytes)}`)
      : empty(),
    found.documents.map(documentItem),
    pages > 1
      ? h(
          "nav",
          { class: "pager", "aria-label": "Pages of the list" },
          iconButton("Earlier", "back", { disabled: at === 0, onclick: turn(-1) }),
          h("span", { class: "soft" }, `${at + 1} of ${pages}`),
          iconButton("Later", "next", { disabled: at >= pages - 1, onclick: turn(1) }),
        )
      : null,
  );
  drawBulk();
}

const empty = () =>
  h(
    "p",
    { class: "empty-note" },
    view.search || view.collection ? "Nothing found." : "No documents yet. Drop some above: they are read once and remembered.",
  );

function documentItem(one) {
  const box = h("input", {
    type: "checkbox",
    "aria-label": `Choose ${nameOf(one)}`,
    checked: view.selected.has(one.id),
    disabled: !one.mine,
    onchange: () => {
      box.checked ? view.selected.add(one.id) : view.selected.delete(one.id);
      drawBulk();
    },
  });
  const group = view.collections.find((item) => item.id === one.collection_id);
  return h(
    "div",
    { class: "item document", data: { document: one.id } },
    box,
    h(
      "button",
      { type: "button", class: "plain grow", onclick: () => one.pages && openViewer({ document: one }) },
      h("div", { class: "item-title" }, nameOf(one)),
      h(
        "div",
        { class: "soft" },
        [
          one.source !== one.title ? one.source : "",
          one.mine ? "" : one.owner ? `of ${one.owner}` : "everybody's",
          plural(one.pages, "page"),
          bytes(one.size_bytes),
          when(one.added_at),
        ]
          .filter(Boolean)
          .join(" · "),
      ),
      one.notes.length
        ? h(
            "div",
            { class: "note-text" },
            one.notes.slice(0, 3).join(" "),
            one.notes.length > 3 ? ` And ${one.notes.length - 3} more notes.` : "",
          )
        : null,
    ),
    group ? h("span", { class: "tag" }, group.name) : null,
    one.state === "ready"
      ? null
      : h(
          "span",
          { class: `tag ${one.state}` },
          { ingesting: "being read", failed: "not read", cancelled: "cancelled" }[one.state] || one.state,
        ),
    one.mine
      ? [
          iconButton(`Rename ${nameOf(one)}`, "edit", { onclick: () => rename(one) }),
          iconButton(`Delete ${nameOf(one)}`, "trash", { onclick: () => removeAll([one]) }),
        ]
      : null,
  );
}

async function rename(one) {
  const title = await askText("Rename document", "Title", nameOf(one));
  if (title && title !== one.title) each([one], () => patch(`documents/${one.id}`, { title }));
}

async function removeAll(documents) {
  const many = documents.length > 1;
  const size = documents.reduce((sum, one) => sum + (one.size_bytes || 0), 0);
  const sure = await confirm(
    many ? `Delete ${documents.length} documents?` : `Delete “${nameOf(documents[0])}”?`,
    `What the model remembers of ${many ? "them" : "it"}, the original ${many ? "files" : "file"} and the answers that used ${many ? "them" : "it"} will be deleted permanently.${size ? ` About ${bytes(size)} will be freed.` : ""}`,
    "Delete",
  );
  if (!sure) return;
  try {
    const gone = await post("documents/delete", { document_ids: documents.map((one) => one.id) });
    for (const one of documents) view.selected.delete(one.id);
    toast(
      `Deleted ${plural(gone.documents, "document")}${gone.answers ? ` and ${plural(gone.answers, "answer")}` : ""}: ${bytes(gone.freed_bytes)} freed.`,
    );
  } catch (error) {
    toast(error.message, "bad");
  }
  drawDocuments();
  drawCollections();
}

function drawBulk() {
  const ids = [...view.selected];
  parts.bulk.hidden = !ids.length;
  if (!ids.length) return;
  const move = h(
    "select",
    {
      class: "input small",
      "aria-label": "Move to a collection",
      onchange: () => {
        const target = move.value === "none" ? null : move.value;
        view.selected.clear();
        each(ids, (id) => patch(`documents/${id}`, { collection_id: target }));
      },
    },
    h("option", { value: "" }, "Move to…"),
    h("option", { value: "none" }, "No collection"),
    view.collections.filter((one) => one.mine).map((one) => h("option", { value: one.id }, one.name)),
  );
  replace(
    parts.bulk,
    h("span", { class: "grow" }, `${plural(ids.length, "document")} chosen`),
    move,
    button(
      "Delete",
      { class: "button danger small", onclick: () => removeAll(ids.map((id) => ({ id, title: "the chosen document", size_bytes: 0 }))) },
      "trash",
    ),
    iconButton("Choose none", "close", {
      onclick: () => {
        view.selected.clear();
        drawDocuments();
      },
    }),
  );
}
