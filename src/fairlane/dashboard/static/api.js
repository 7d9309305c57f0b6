// The public HTTP API: verbs, the journal, and the live feed. A key travels as a header only, never as a cookie,
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

async function asked(path, options) {
  let answer;
  try {
    answer = await fetch(path, { ...options, headers: headers(options.headers ?? {}), credentials: "omit", cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, { code: "unreachable", cause: "The server does not answer.", remedy: "It is tried again by itself." });
  }
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => null);
  throw new Refusal(answer.status, body?.error ?? { code: String(answer.status), cause: answer.statusText, remedy: "" });
}

export async function call(path, request = {}) {
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(request) };
  return (await asked(`/v1/${path}`, options)).json();
}

export async function get(path) {
  return (await asked(`/v1/${path}`, {})).json();
}

// Returns a queue of every journal there is, by the name that means it alone and not all of its partitions: a server
// alone has one journal, for which no queue is named, and a cluster has one for each group of queues.
// Those of the queue that is named, if one is, come first.
let isAlone = false;
export async function journals(queue = null) {
  if (isAlone) return [null];
  try {
    const { groups } = await get("cluster");
    const isOf = group => group.queues.some(each => wholeOf(each) === queue);
    const sorted = groups.filter(group => group.queues.length).sort((one, other) => isOf(other) - isOf(one));
    return sorted.map(group => journalOf(group.queues[0]));
  } catch (error) {
    if (error.status === 0 || error.status === 401 || error.status === 403) throw error;
    isAlone = true;
    return [null];
  }
}

const journalOf = queue => queue.includes("~") ? queue : `${queue}~0`;

// Returns the queue that a partition is of, whose policy and weights are those of all its partitions.
export const queueOf = name => name.replace(/~\d+(?=(\.dlq)?$)/, "");

// Returns the queue whose partition, or whose dead letters, a name means.
export const wholeOf = name => name.replace(/\.dlq$/, "").replace(/~\d+$/, "");

// Returns events of the journal, with the position they reach to and where the journal ends.
export async function journal(parameters) {
  const given = Object.entries({ on_trimmed: "skip", ...parameters }).filter(([, value]) => value !== null);
  const answer = await asked(`/v1/journal?${new URLSearchParams(given)}`, {});
  const lines = (await answer.text()).split("\n").filter(Boolean);
  return {
    events: lines.map(line => JSON.parse(line)),
    position: Number(answer.headers.get("x-fairlane-position")),
    beginning: Number(answer.headers.get("x-fairlane-beginning")),
    end: Number(answer.headers.get("x-fairlane-end")),
  };
}

// The live feed. It comes back by itself when the server does; "picture", "state" and "refused" are its events.
export class Live extends EventTarget {
  picture = null;
  #wish = null;
  #abort = null;

  watch(queue, match = "") {
    const wish = new URLSearchParams(queue ? { queue, ...(match && { match }) } : {}).toString();
    if (wish === this.#wish && this.#abort) return;
    this.#wish = wish;
    this.stop();
    this.#abort = new AbortController();
    this.#run(wish, this.#abort.signal);
  }

  stop() {
    this.#abort?.abort();
    this.#abort = null;
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  async #run(wish, signal) {
    for (let tries = 0; !signal.aborted; tries += 1) {
      try {
        const answer = await asked(`/v1/live?${wish}`, { signal });
        let isFirst = true;
        for await (const picture of pictures(answer.body)) {
          if (signal.aborted) return;
          tries = 0;
          this.picture = Object.assign(picture, { isFirst });
          isFirst = false;
          this.#tell("state", "live");
          this.#tell("picture", picture);
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

async function* pictures(body) {
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
