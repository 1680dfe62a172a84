// What changed on the server, told to whoever shows it: "cairn:files" (waiting files and jobs) and "cairn:library" (documents or
// collections), and "cairn:back" when it is there again after a request found nobody. Only a tab that is looked at listens: a browser has few connections to one server.

import { address, firstOf } from "./api.js";
import { h } from "./dom.js";

const RETRY_MS = 4000;
let source = null;
let missed = false; // a request found no server
let failures = 0; // to open the stream, and one for its end, which comes every half minute
const away = h("div", { class: "away", role: "status", hidden: true }, "The server does not answer. What you see may be out of date.");

const tell = (name, detail) => document.dispatchEvent(new CustomEvent(`cairn:${name}`, { detail }));

export async function followChanges() {
  if (document.hidden) {
    source?.close();
    source = null;
    return;
  }
  if (source) return;
  const seen = await firstOf("seen").catch(() => ""); // when the page was filled
  if (source || document.hidden) return;
  source = new EventSource(address(`events?seen=${seen}`));
  source.addEventListener("files", (event) => tell("files", JSON.parse(event.data)));
  source.addEventListener("library", () => tell("library"));
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
