// Past questions by conversation, the newest first; one opens with its whole conversation and evidence.

import { get, latest, remove } from "./api.js";
import { button, confirm, h, iconButton, oneByOne, plural, replace, toast, when } from "./dom.js";

const PAGE = 50;
const view = { search: "", offset: 0 };
let parts = null;

export function mountHistory(node, { goTo }) {
  const search = h("input", {
    class: "input",
    type: "search",
    placeholder: "Find in questions and answers…",
    "aria-label": "Find in the history",
    value: view.search,
    oninput: () => {
      view.search = search.value;
      view.offset = 0;
      later();
    },
  });
  const list = h("div", { class: "history-list" });
  let timer;
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(draw, 180);
  };
  parts = { list, goTo, node };
  replace(node, h("div", { class: "history" }, h("div", { class: "row tools" }, search), list));
  draw();
}

document.addEventListener("cairn:view", (event) => {
  if (event.detail.view === "history" && parts) draw();
});

document.addEventListener("cairn:back", () => {
  if (parts) draw();
});

const draw = latest(
  () => get("answers", { search: view.search, limit: PAGE, offset: view.offset }),
  show,
  (error) => replace(parts.list, h("div", { class: "verdict bad" }, error.message)),
);

function show(found) {
  const turn = (step) => () => {
    view.offset = Math.max(0, view.offset + step * PAGE);
    draw();
  };
  replace(
    parts.list,
    found.answers.length ? null : h("p", { class: "empty-note" }, view.search ? "Nothing found." : "Questions that you ask are kept here."),
    byConversation(found.answers).map((heads) => (heads.length > 1 ? conversation(heads) : item(heads[0]))),
    found.more || view.offset
      ? h(
          "nav",
          { class: "pager", "aria-label": "Pages of the history" },
          iconButton("Newer", "back", { disabled: view.offset === 0, onclick: turn(-1) }),
          h("span", { class: "soft" }, `${view.offset + 1} to ${view.offset + found.answers.length}`),
          iconButton("Older", "next", { disabled: !found.more, onclick: turn(1) }),
        )
      : null,
  );
}

// Answers of one conversation together, oldest first, where the newest of them stood.
function byConversation(answers) {
  const groups = new Map();
  for (const head of answers) {
    const key = head.conversation_id ?? head.id;
    groups.set(key, [head, ...(groups.get(key) ?? [])]);
  }
  return [...groups.values()];
}

const conversation = (heads) =>
  h(
    "section",
    { class: "conversation-group", "aria-label": `Conversation: ${heads[0].question}` },
    h(
      "div",
      { class: "row head" },
      h("span", { class: "soft grow" }, `Conversation of ${plural(heads.length, "question")}`),
      button("Delete all of it", {
        class: "button quiet small",
        onclick: async () => {
          if (!(await confirm("Delete this conversation?", plural(heads.length, "question"), "Delete"))) return;
          await oneByOne(heads, (head) => remove(`answers/${head.id}`));
          draw();
        },
      }),
    ),
    heads.map(item),
  );

function item(head) {
  return h(
    "div",
    { class: "item", data: { answer: head.id } },
    h(
      "button",
      { type: "button", class: "plain grow", onclick: () => parts.goTo("ask", { answer: head.id }) },
      h("div", { class: "item-title serif" }, head.question),
      h("div", { class: "soft line" }, head.text || "Stopped before the first word."),
    ),
    h("span", { class: "soft date" }, when(head.created_at)),
    iconButton("Delete this answer", "trash", {
      onclick: async () => {
        if (!(await confirm("Delete this answer?", head.question, "Delete"))) return;
        try {
          await remove(`answers/${head.id}`);
        } catch (error) {
          toast(error.message, "bad");
        }
        draw();
      },
    }),
  );
}
