// The description of the API, which the server derives from its verbs.

import { get } from "./api.js";

let loading = null;

export function apiDescription() {
  loading ??= get("../openapi.json").catch(error => { loading = null; throw error; });
  return loading;
}

// What a field means where the description of its schema does not say more.
export const MEANINGS = {
  queue: "The name of the queue.", fairness_key: "The fairness key: a name, or a path of names.", ids: "The ids of the messages.",
  messages: "The messages, in their order.", receipt: "The id and the token of a leased message.", receipts: "The id and the token of each leased message.",
  results: "The outcome for each item, in the order of the request.", consumer: "The name of the registered consumer.", sink: "The name of the sink.",
};

// Returns what the fields of a schema mean, from its description.
export function docsOf(schema) {
  const found = {}, text = (schema.description ?? "").split(/^\s*Attributes:\s*$/m)[1] ?? "";
  for (const [, name, words] of text.matchAll(/^ {8}(\w+): ([\s\S]*?)(?=^ {8}\w+: |(?![\s\S]))/gm)) {
    const plain = words.replace(/\s+/g, " ").replaceAll("``", "").trim();
    found[name] = plain.charAt(0).toUpperCase() + plain.slice(1);
  }
  return found;
}

// Returns the part of a schema's description before its fields.
export function meaningOf(schema) {
  return (schema?.description ?? "").split(/^\s*(?:Attributes|Args|Raises):\s*$/m)[0].split(/\n\s*\n/).map(each => each.replace(/\s+/g, " ").replaceAll("``", "").trim()).filter(Boolean);
}

// Returns the schema that a reference or an alternative with null stands for.
export function resolved(api, schema) {
  if (schema?.$ref) return resolved(api, api.components.schemas[schema.$ref.split("/").pop()]);
  if (schema?.anyOf) return resolved(api, schema.anyOf.find(part => part.type !== "null"));
  return schema ?? {};
}
