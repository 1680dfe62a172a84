// The HTTP API as a page, drawn from the server's own OpenAPI description.

import { h, replace } from "./dom.js";

const page = document.getElementById("reference");

function typeOf(schema, all) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.anyOf) return schema.anyOf.map((one) => typeOf(one, all)).join(" or ");
  if (schema.type === "array") return `list of ${typeOf(schema.items, all) || "anything"}`;
  if (schema.enum) return schema.enum.join(" | ");
  return schema.type === "object" ? "object" : schema.format === "binary" || schema.contentMediaType ? "file" : schema.type || "anything";
}

const row = (name, schema, required, all) =>
  h(
    "tr",
    {},
    h("td", {}, h("code", {}, name), required ? h("span", { class: "required" }, " required") : null),
    h("td", {}, typeOf(schema, all)),
    h(
      "td",
      {},
      [
        schema?.description,
        schema?.default !== undefined && schema.default !== null && typeof schema.default !== "object" ? `default ${schema.default}` : "",
      ]
        .filter(Boolean)
        .join("; "),
    ),
  );

function body(operation, all) {
  const content = Object.entries(operation.requestBody?.content || {})[0];
  if (!content) return [];
  let schema = content[1].schema || {};
  if (schema.anyOf) schema = schema.anyOf[0];
  if (schema.$ref) schema = all[schema.$ref.split("/").at(-1)] || {};
  return [
    h("div", { class: "kind" }, content[0]),
    table(Object.entries(schema.properties || {}).map(([name, one]) => row(name, one, (schema.required || []).includes(name), all))),
  ];
}

const table = (rows) => (rows.length ? h("table", {}, h("tbody", {}, rows)) : null);

function operationOf(path, method, operation, all) {
  return h(
    "section",
    { class: "operation" },
    h("h3", {}, h("span", { class: `method ${method}` }, method.toUpperCase()), " ", h("code", {}, path)),
    operation.description ? h("p", {}, operation.description) : null,
    table((operation.parameters || []).map((one) => row(one.name, { description: one.description, ...one.schema }, one.required, all))),
    body(operation, all),
  );
}

try {
  const spec = await (await fetch("/api/v1/openapi.json")).json();
  const all = spec.components?.schemas || {},
    groups = new Map();
  for (const [path, methods] of Object.entries(spec.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const tag = operation.tags?.[0] || "other";
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push(operationOf(path, method, operation, all));
    }
  }
  replace(
    page,
    h("h1", {}, `${spec.info.title}: HTTP API`),
    (spec.info.description || "").split("\n\n").map((text) => h("p", {}, text)),
    h("p", {}, "The same for programs: ", h("a", { href: "/api/v1/openapi.json" }, "openapi.json")),
    [...groups].map(([tag, operations]) => [h("h2", {}, tag), operations]),
  );
} catch {
  replace(page, "The description could not be loaded.");
}
