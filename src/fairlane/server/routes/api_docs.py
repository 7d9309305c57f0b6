"""The API documentation page: a single file that loads nothing from elsewhere."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from typing import Final

PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Fairlane API</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
details { border: 1px solid #8885; border-radius: 6px; margin: .4rem 0; padding: .4rem .8rem; }
summary { cursor: pointer; } code, pre { font: 13px/1.45 ui-monospace, monospace; }
pre { overflow: auto; background: #8881; padding: .6rem; border-radius: 6px; }
b { display: inline-block; width: 3.2rem; color: #2a7; } i { float: right; opacity: .6; }
input { width: 100%; padding: .5rem; font: inherit; box-sizing: border-box; }
</style></head><body>
<h1>Fairlane API</h1>
<p>Bytes are base64 in JSON. Every error has a code, a cause and a remedy.
The source of this page: <a href="/openapi.json">openapi.json</a>.</p>
<input id="filter" placeholder="Filter by path or text" aria-label="Filter">
<div id="list"></div>
<script>
const resolve = (api, schema, depth) => {
  if (!schema || depth > 4) return "...";
  if (schema.$ref) return resolve(api, api.components.schemas[schema.$ref.split("/").pop()], depth + 1);
  if (schema.anyOf) {
    const parts = schema.anyOf.map(part => resolve(api, part, depth + 1));
    if (parts.length === 2 && parts[1] === "null") return parts[0];
    return parts.find(part => typeof part !== "string") ?? parts.join(" | ");
  }
  if (schema.enum) return schema.enum.join(" | ");
  if (schema.type === "array") return [resolve(api, schema.items || (schema.prefixItems || [])[0], depth + 1)];
  if (schema.properties) return Object.fromEntries(Object.entries(schema.properties).map(([name, part]) =>
    [name + ((schema.required || []).includes(name) ? "" : "?"), resolve(api, part, depth + 1)]));
  return schema.contentEncoding ? schema.contentEncoding : schema.type || "any";
};
const show = (title, value) => {
  const box = document.createElement("div"), pre = document.createElement("pre");
  box.textContent = title; pre.textContent = JSON.stringify(value, null, 2); box.append(pre); return box;
};
fetch("/openapi.json").then(answer => answer.json()).then(api => {
  const list = document.getElementById("list");
  for (const [path, methods] of Object.entries(api.paths)) for (const [method, operation] of Object.entries(methods)) {
    const details = document.createElement("details"), summary = document.createElement("summary");
    const bold = document.createElement("b"), code = document.createElement("code"), tag = document.createElement("i");
    bold.textContent = method.toUpperCase(); code.textContent = path; tag.textContent = (operation.tags || []).join();
    summary.append(bold, code, tag, document.createElement("br"), operation.summary); details.append(summary);
    const asked = operation.requestBody && Object.values(operation.requestBody.content)[0].schema;
    const answered = Object.values(operation.responses["200"].content)[0].schema;
    details.addEventListener("toggle", () => {
      if (asked) details.append(show("Request", resolve(api, asked, 0)));
      for (const place of operation.parameters || []) details.append(show("Parameter in " + place.in, place.name));
      details.append(show("Answer", resolve(api, answered, 0)));
    }, { once: true });
    details.dataset.words = (path + " " + operation.summary).toLowerCase(); list.append(details);
  }
  document.getElementById("filter").addEventListener("input", event => {
    for (const item of list.children) item.hidden = !item.dataset.words.includes(event.target.value.toLowerCase());
  });
});
</script></body></html>
"""


def _hash_of(element: str) -> str:
    """Return how a content security policy names the only script or style of the page."""
    text = PAGE.partition(f"<{element}>")[2].partition(f"</{element}>")[0]
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


CONTENT_POLICY: Final = (
    f"default-src 'none'; connect-src 'self'; style-src {_hash_of('style')}; script-src {_hash_of('script')}; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Only the page's own script and style run, it loads nothing but the description, and no other page may frame it."""
