// Followed folders: what they are, what the last look found, and, where that is allowed, adding one.

import { get, latest, post, remove } from "./api.js";
import { announce, button, confirm, h, iconButton, number, plural, renew, toast, when } from "./dom.js";

const WORDS = { same: "the same", reading: "being read", later: "still being written", skipped: "not followed" };
const REMOVED = [
  ["keep", "keep their documents"],
  ["trash", "documents go to the trash"],
  ["delete", "delete their documents"],
];
let section = null;
let form = null; // kept when the rest is drawn again: somebody may be typing

export function mountFolders() {
  section = h("section", { class: "card folders", "aria-label": "Followed folders", hidden: true });
  form = addition();
  drawFolders();
  return section;
}

export const drawFolders = latest(
  () => get("folders"),
  show,
  (error) => toast(error.message, "bad"),
);

function show(found) {
  section.hidden = !found.folders.length && !found.may_add;
  renew(
    section,
    h("h2", {}, "Followed folders"),
    h("p", { class: "soft" }, "What is new, changed, moved or removed in a followed folder happens to its documents too."),
    found.folders.map(row),
    found.may_add ? form : null,
  );
}

const counted = (report) =>
  Object.entries(report.counts)
    .map(([change, count]) => `${number(count)} ${WORDS[change] || change}`)
    .join(", ") || "nothing in it";

function row(folder) {
  const last = folder.last_run_at ? `Looked at ${when(folder.last_run_at)}` : "Not looked at yet";
  const said = folder.report ? `: ${counted(folder.report)}.` : ".";
  const problems = folder.problem ? [["", folder.problem]] : folder.report ? folder.report.problems : [];
  const where = [
    folder.watched ? "watched" : "looked at when asked",
    folder.collection && `into ${folder.collection}`,
    folder.owner && `of ${folder.owner}`,
    { delete: "documents of removed files are deleted", trash: "documents of removed files go to the trash" }[folder.removed],
  ];
  return h(
    "div",
    { class: "item folder" },
    h(
      "div",
      { class: "grow" },
      h("div", { class: "item-title" }, folder.path),
      h("div", { class: "soft" }, where.filter(Boolean).join(" · ")),
      h("div", { class: "soft" }, last + said),
      problems.map(([source, reason]) => h("div", { class: "problem" }, source ? `${source}: ${reason}` : reason)),
    ),
    iconButton(`Look at ${folder.path} now`, "retry", { onclick: (event) => look(folder, event.currentTarget) }),
    iconButton(`Follow ${folder.path} no longer`, "close", { onclick: () => forget(folder) }),
  );
}

async function look(folder, control) {
  control.disabled = true;
  try {
    const report = await post(`folders/${folder.id}/run`);
    announce(`${folder.path}: ${counted(report)}`);
  } catch (error) {
    toast(error.message, "bad");
  }
  control.disabled = false;
  drawFolders();
}

async function forget(folder) {
  const files = folder.report ? Object.values(folder.report.counts).reduce((sum, count) => sum + count, 0) : 0;
  const what = files ? `Its documents (${plural(files, "file")}) stay in the library.` : "Its documents stay in the library.";
  if (!(await confirm("Follow this folder no longer?", `${folder.path}. ${what}`, "Stop following"))) return;
  try {
    await remove(`folders/${folder.id}`);
  } catch (error) {
    toast(error.message, "bad");
  }
  drawFolders();
}

function addition() {
  const path = h("input", { class: "input grow", id: "folder-path", placeholder: "/home/me/reports", autocomplete: "off" });
  const collection = h("input", {
    class: "input",
    id: "folder-collection",
    "aria-label": "Collection",
    placeholder: "Collection (optional)",
  });
  const removed = h(
    "select",
    { class: "input", "aria-label": "When files are removed" },
    REMOVED.map(([value, label]) => h("option", { value }, `Removed files: ${label}`)),
  );
  let adding = false;
  const add = async (event) => {
    event.preventDefault();
    const wanted = path.value.trim();
    if (!wanted || adding) return;
    adding = true;
    try {
      const folder = await post("folders", {
        path: wanted,
        collection: collection.value.trim() || null,
        removed: removed.value,
      });
      if (path.value.trim() === wanted) path.value = collection.value = ""; // unless the next one is typed already
      await post(`folders/${folder.id}/run`);
    } catch (error) {
      toast(error.message, "bad");
    }
    adding = false;
    drawFolders();
  };
  return h(
    "form",
    { class: "row tools", onsubmit: add },
    h("label", { class: "sr-only", for: "folder-path" }, "Folder on this machine"),
    path,
    collection,
    removed,
    button("Follow", { type: "submit", class: "button small" }, "plus"),
  );
}
