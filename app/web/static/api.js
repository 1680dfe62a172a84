// The HTTP API of this server, and nothing else: paths are relative to where this file was served from.

const ROOT = new URL("../api/v1/", import.meta.url);

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export const address = (path) => new URL(path, ROOT).toString();

function query(values) {
  const every = Object.entries(values).flatMap(([name, value]) => (Array.isArray(value) ? value : [value]).map((one) => [name, one]));
  const kept = every.filter(([, value]) => value !== undefined && value !== null && value !== "");
  return kept.length ? `?${new URLSearchParams(kept)}` : "";
}

async function problem(response) {
  let error = {};
  try {
    error = (await response.json()).error || {};
  } catch {
    // not our JSON: a proxy between us and the server answered
  }
  if (response.status === 401) location.assign(new URL("../../login", ROOT));
  return new ApiError(response.status, error.code || "unknown", error.message || `The server answered ${response.status}.`);
}

// What a browser says of a broken connection ("Failed to fetch") tells nobody anything.
async function reached(promise, sentence) {
  try {
    return await promise;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    document.dispatchEvent(new CustomEvent("cairn:unreachable"));
    throw new ApiError(0, "unreachable", sentence);
  }
}

async function call(method, path, body, signal) {
  const response = await reached(
    fetch(address(path), {
      method,
      signal,
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    }),
    "The server does not answer. Is it still running?",
  );
  if (!response.ok) throw await problem(response);
  return response.status === 204 ? null : response.json();
}

export const get = (path, values = {}) => call("GET", path + query(values));

// What the page shows first comes in one answer. Afterwards each part of it is asked for by itself.
let first = null;
export async function firstOf(name) {
  first ||= get("first").catch((error) => {
    first = null;
    throw error;
  });
  return (await first)[name];
}

export const post = (path, body = {}) => call("POST", path, body);
export const put = (path, body) => call("PUT", path, body);
export const patch = (path, body) => call("PATCH", path, body);
export const remove = (path) => call("DELETE", path);

// A function that fetches and then shows. Answers come in any order: only what was asked last is shown, or how it failed.
export function latest(fetch, show, fail) {
  let asked = 0;
  return async (...given) => {
    const mine = ++asked;
    let found;
    try {
      found = await fetch(...given);
    } catch (error) {
      if (mine === asked) fail(error);
      return;
    }
    if (mine === asked) show(found, ...given);
  };
}

// Send one file to `path`; `onProgress` gets shares from 0 to 1.
export function upload(file, onProgress, path = "uploads", fields = {}) {
  return new Promise((resolve, reject) => {
    const form = new FormData();
    for (const [name, value] of Object.entries(fields)) form.append(name, value);
    form.append("file", file, file.name);
    const request = new XMLHttpRequest();
    request.open("POST", address(path));
    request.upload.addEventListener("progress", (event) => event.lengthComputable && onProgress(event.loaded / event.total));
    request.addEventListener("error", () =>
      reject(new ApiError(0, "unreachable", `${file.name} could not be sent: the server does not answer.`)),
    );
    request.addEventListener("load", () => {
      let body = {};
      try {
        body = JSON.parse(request.responseText);
      } catch {
        // answered below by status
      }
      if (request.status < 300) resolve(body);
      else reject(new ApiError(request.status, body.error?.code, body.error?.message || `${file.name} was refused.`));
    });
    request.send(form);
  });
}

// Put a question; `on` has handlers by event name: started, token, answer, error. Resolves when the stream ends.
export async function ask(request, on, signal) {
  const response = await reached(
    fetch(address("ask"), {
      method: "POST",
      signal,
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(request),
    }),
    "The server does not answer. Is it still running?",
  );
  if (!response.ok) throw await problem(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reached(reader.read(), "The connection to the server broke off. Ask again when it is running.");
    if (done) return;
    buffer += value;
    for (let end = buffer.indexOf("\n\n"); end >= 0; end = buffer.indexOf("\n\n")) {
      deliver(buffer.slice(0, end), on);
      buffer = buffer.slice(end + 2);
    }
  }
}

function deliver(text, on) {
  let name = "",
    data = "";
  for (const line of text.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (name && on[name]) on[name](JSON.parse(data));
}
