// Libraries that travel: documents with what the model remembers of them as one file, out and in.

import { address, upload } from "./api.js";
import { button, h, icon, plural, toast } from "./dom.js";

// `collection`: the one that is looked at, or undefined for all documents. `onArrived`: there are others now.
export function bundleControls(collection, onArrived) {
  const input = h("input", {
    type: "file",
    accept: ".cairn",
    class: "sr-only",
    tabindex: "-1",
    "aria-label": "A file that Export made",
    onchange: () => take(input.files[0]),
  });
  const bring = button(
    "Import",
    { class: "button quiet small", title: "Take in a file that Export made", onclick: () => input.click() },
    "up",
  );
  const what = collection ? `the documents of ${collection.name}` : "all documents";

  async function take(file) {
    if (!file) return;
    input.value = "";
    bring.disabled = true;
    bring.lastChild.textContent = "Importing…";
    try {
      const { documents } = await upload(file, () => {}, "bundle");
      toast(told(documents));
      for (const { source, error } of documents.filter((one) => one.error)) toast(`${source}: ${error}`, "bad");
      onArrived();
    } catch (error) {
      toast(error.message, "bad");
    }
    bring.disabled = false;
    bring.lastChild.textContent = "Import";
  }

  return h(
    "span",
    { class: "row bundles" },
    h(
      "a",
      {
        class: "button quiet small",
        href: address(`bundle${collection ? `?collection_id=${encodeURIComponent(collection.id)}` : ""}`),
        download: true,
        title: `Save ${what} with what was read of them as one file`,
      },
      icon("down"),
      h("span", {}, "Export"),
    ),
    bring,
    input,
  );
}

function told(documents) {
  const count = (status) => documents.filter((one) => one.status === status).length;
  const known = count("already stored");
  if (known === documents.length) return "All of it is stored already.";
  return `${plural(count("imported"), "document")} imported${known ? `, ${known} already stored` : ""}.`;
}
