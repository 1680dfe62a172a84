// What changed on the server, told to whoever shows it: "cairn:files" (waiting files and jobs) and "cairn:library" (documents or
// collections), and "cairn:back" when it is there again after a request found nobody. Only a tab that is looked at listens: a browser has few connections to one server.

import { address } from "./api.js";
import { h } from "./dom.js";

const RETRY_MS = 4000;
let source = null;
let missed = false; // a request found no server
let failures = 0; // to open the stream, and one for its end, which comes every half minute
const away = h("div", { class: "away", role: "status", hidden: true }, "The server does not answer. What you see may be out of date.");
let begun = false; // the first stream begins with news of what has just been loaded

const tell = (name, detail) => document.dispatchEvent(new CustomEvent(`cairn:${name}`, { detail }));

export function followChanges() {
  if (document.hidden) {
    source?.close();
    source = null;
    return;
  }
  if (source) return;
  source = new EventSource(address("events"));
  source.addEventListener("files", (event) => tell("files", JSON.parse(event.data)));
  source.addEventListener("library", () => {
    if (begun) tell("library");
    begun = true;
  });
  source.addEventListener("open", () => {
    failures = 0;
    away.hidden = true;
    if (missed) tell("back");
    missed = false;
  });
  source.addEventListener("error", () => {
    if (source?.readyState !== EventSource.CLOSED) {
      failures += 1;
      if (failures > 1) sayAway();
      return; // it tries again by itself
    }
    source = null;
    setTimeout(followChanges, RETRY_MS);
  });
}

// Until it answers again, or the tab is left.
function sayAway() {
  missed = true;
  if (!away.isConnected) document.body.append(away);
  away.hidden = false;
}

document.addEventListener("cairn:unreachable", () => {
  missed = true;
});
document.addEventListener("visibilitychange", followChanges);
window.addEventListener("pagehide", () => {
  source?.close();
  source = null;
});
window.addEventListener("pageshow", (event) => event.persisted && followChanges());
