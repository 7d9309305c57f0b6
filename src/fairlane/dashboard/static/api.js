// The public HTTP API: verbs, the journal and the live feed. The API key is sent as a header, never as a cookie,
// so no page of another site can make this browser use it.

const STORED = "fairlane.key";
const RETRY_MS = [300, 600, 1000, 2000, 3000];

export class Refusal extends Error {
  constructor(status, error) {
    super(error.cause);
    Object.assign(this, { status, code: error.code, cause: error.cause, remedy: error.remedy });
  }
}

export const hasKey = () => sessionStorage.getItem(STORED) !== null;

export function setKey(key) {
  if (key) sessionStorage.setItem(STORED, key);
  else sessionStorage.removeItem(STORED);
}

function headers(more) {
  const key = sessionStorage.getItem(STORED);
  return key ? { ...more, Authorization: `Bearer ${key}` } : more;
}

async function request(path, options) {
  let answer;
  try {
    answer = await fetch(path, { ...options, headers: headers(options.headers ?? {}), credentials: "omit", cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, { code: "unreachable", cause: "The server does not respond.", remedy: "The page retries automatically." });
  }
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => null);
  throw new Refusal(answer.status, body?.error ?? { code: String(answer.status), cause: answer.statusText, remedy: "" });
}

export async function call(path, body = {}) {
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  return (await request(`/v1/${path}`, options)).json();
}

// Sends a request as it is, and returns the answer as text, whatever it is.
export async function send(method, path, body) {
  try {
    const options = body === undefined ? { method } : { method, body, headers: headers({ "Content-Type": "application/json" }) };
    const answer = await fetch(path, { headers: headers({}), ...options, credentials: "omit", cache: "no-store" });
    const text = await answer.text();
    const isJson = answer.headers.get("content-type")?.startsWith("application/json");
    return { status: answer.status, words: answer.statusText, text: isJson && text ? JSON.stringify(JSON.parse(text), null, 2) : text };
  } catch (error) {
    return { status: 0, words: "not sent", text: String(error) };
  }
}

export async function get(path) {
  return (await request(`/v1/${path}`, {})).json();
}

// Returns what a queue did in the last hour or day; of all queues together if it is null.
export const history = (queue, span) => get(`history?${new URLSearchParams({ span, ...(queue && { queue }) })}`);

// Returns one queue for each journal. A cluster has a journal per group of queues; a single server has one journal, for
// which no queue is named (null). A split queue is named by its first partition, because the plain name means all of
// them. The journals of the given queue come first.
let isSingle = false;
export async function journals(queue = null) {
  if (isSingle) return [null];
  try {
    const { groups } = await get("cluster");
    const isOf = group => group.queues.some(each => wholeOf(each) === queue);
    const sorted = groups.filter(group => group.queues.length).sort((one, other) => isOf(other) - isOf(one));
    return sorted.map(group => journalOf(group.queues[0]));
  } catch (error) {
    if (error.status === 0 || error.status === 401 || error.status === 403) throw error;
    isSingle = true;
    return [null];
  }
}

const journalOf = queue => queue.includes("~") ? queue : `${queue}~0`;

// Returns the queue of a partition; all partitions have its policy and weights.
export const queueOf = name => name.replace(/~\d+(?=(\.dlq)?$)/, "");

// Returns the queue that a partition or a dead-letter queue belongs to.
export const wholeOf = name => name.replace(/\.dlq$/, "").replace(/~\d+$/, "");

// Returns an event with the id of its message, which holds its number and the id of the journal. Of messages from before
// a restore only the number is known, which the server takes as well.
function withId(event, journalId, since) {
  const number = event.message_id;
  if (!number || Number.parseInt(number, 16) <= since) return { ...event, id: number };
  const variant = "89ab"[Number.parseInt(journalId[0], 16) & 3];
  const groups = [number.slice(1, 9), number.slice(9, 13), `8${number.slice(13)}`, variant + journalId.slice(1, 4), journalId.slice(4)];
  return { ...event, id: groups.join("-") };
}

// Returns journal events, the position after them, and where the journal begins and ends.
export async function journal(parameters) {
  const given = Object.entries({ on_trimmed: "skip", ...parameters }).filter(([, value]) => value !== null);
  const answer = await request(`/v1/journal?${new URLSearchParams(given)}`, {});
  const lines = (await answer.text()).split("\n").filter(Boolean);
  const journalId = answer.headers.get("x-fairlane-journal"), since = Number(answer.headers.get("x-fairlane-since"));
  return {
    events: lines.map(line => withId(JSON.parse(line), journalId, since)),
    position: Number(answer.headers.get("x-fairlane-position")),
    beginning: Number(answer.headers.get("x-fairlane-beginning")),
    end: Number(answer.headers.get("x-fairlane-end")),
  };
}

// The live feed. It reconnects automatically. Its events are "snapshot", "state" and "refused".
export class Live extends EventTarget {
  snapshot = null;
  heard_ms = null;
  #query = null;
  #wanted = {};
  #name = "";
  #abort = null;

  // Watches the keys of a queue, of which those that contain a text.
  watch(queue, match = "") {
    this.#wanted = queue ? { queue, ...(match && { match }) } : {};
    this.#begin();
  }

  // Lists only queues that contain a text, for servers with very many.
  find(name) {
    this.#name = (this.snapshot?.queues_left_off ?? 0) > 0 || this.#name ? name : "";
    this.#begin();
  }

  #begin() {
    const query = new URLSearchParams({ ...this.#wanted, ...(this.#name && { queues_match: this.#name }) }).toString();
    if (query === this.#query && this.#abort) return;
    this.#query = query;
    this.stop();
    this.#abort = new AbortController();
    this.#run(query, this.#abort.signal);
  }

  stop() {
    this.#abort?.abort();
    this.#abort = null;
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  async #run(query, signal) {
    for (let tries = 0; !signal.aborted; tries += 1) {
      try {
        const answer = await request(`/v1/live?${query}`, { signal });
        let isFirst = true;
        for await (const snapshot of snapshots(answer.body)) {
          if (signal.aborted) return;
          tries = 0;
          this.heard_ms = Date.now();
          this.snapshot = Object.assign(snapshot, { isFirst });
          isFirst = false;
          this.#tell("state", "live");
          this.#tell("snapshot", snapshot);
        }
      } catch (error) {
        if (signal.aborted) return;
        if ([401, 403, 404, 409].includes(error.status)) {
          this.stop();
          this.#tell("refused", error);
          return;
        }
      }
      this.#tell("state", "lost");
      await new Promise(resolve => setTimeout(resolve, RETRY_MS[Math.min(tries, RETRY_MS.length - 1)]));
    }
  }
}

async function* snapshots(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (true) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (text + value).split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const line = part.split("\n").find(each => each.startsWith("data: "));
      if (line) yield JSON.parse(line.slice(6));
    }
  }
}
