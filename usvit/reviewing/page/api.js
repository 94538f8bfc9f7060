/** Requests to the server. An answer is sent until it is saved; a reload of the page sends again what was not. */

import { warn } from "./dom.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 8000;
const PASSING = [408, 429]; // and every 5xx: the server may take the same request a moment later

/** The server said no, and would say no again. */
export class Refused extends Error {
  constructor(status, text, repeated) {
    super(text);
    this.status = status;
    this.repeated = repeated;
  }
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** What the server says where it refuses something. */
export async function refusal(response, repeated = false) {
  const body = await response.json().catch(() => ({}));
  const text = body.error ?? `The server answered ${response.status} ${response.statusText}.`;
  const advice = response.status === 403 ? " Open your personal link again." : "";
  return new Refused(response.status, text + advice, repeated);
}

/** Ask once, or again until the server answers. Errors: Refused; TypeError where it is asked only once. */
export async function request(path, options = {}, once = false) {
  for (let attempt = 0; ; attempt++) {
    let response = null;
    try {
      response = await fetch(path, { cache: "no-store", credentials: "same-origin", ...options });
    } catch (error) {
      if (once) throw error;
    }
    if (response?.ok) {
      const body = await response.json().catch(() => null); // null: the connection broke in mid-answer
      if (body !== null) {
        if (attempt) warn("");
        return body;
      }
    } else if (response && (once || (response.status < 500 && !PASSING.includes(response.status)))) {
      if (attempt) warn("");
      throw await refusal(response, attempt > 0);
    }
    const said = response && !response.ok ? `The server answers ${response.status}.` : "The server does not answer.";
    warn(`${said} Nothing is lost: this page tries again until it is saved. Please leave it open.`);
    await pause(Math.min(FIRST_WAIT_MS * 2 ** attempt, LONGEST_WAIT_MS));
  }
}

export const getState = () => request("/api/state");

/** Post; the answer is the new state. `once`: for what must not happen twice. */
export function post(path, body, { once = false } = {}) {
  return send(path, "application/json", JSON.stringify(body), once);
}

/** Send a file; the answer is the new state. */
export const upload = (path, file) => send(path, "application/octet-stream", file, true);

function send(path, type, body, once) {
  return request(path, { method: "POST", headers: { "Content-Type": type, "X-Usvit-Review": "1" }, body }, once);
}

/** The answers on their way to the server, in order; of two to one question, the later one counts. */
export class AnswerQueue {
  #unsaved = new Map();
  #sending = null;
  #seconds;
  #refused;

  /** `seconds()`: the active seconds of the reading; `refused(error)`: the server does not take an answer. */
  constructor(seconds, refused) {
    this.#seconds = seconds;
    this.#refused = refused;
  }

  get empty() {
    return this.#unsaved.size === 0;
  }

  save(task, question, value) {
    this.#unsaved.set(question, { task, question, value });
    this.#keep();
    this.#sending ??= this.#send();
  }

  /** Wait until everything is saved. */
  async flush() {
    await this.#sending;
  }

  /** Send what a page before this one could not; return these answers. */
  resume(task) {
    const kept = JSON.parse(sessionStorage.getItem("unsaved") ?? "[]").filter((answer) => answer.task === task);
    for (const { question, value } of kept) this.save(task, question, value);
    return Object.fromEntries(kept.map(({ question, value }) => [question, value]));
  }

  #keep() {
    if (this.empty) sessionStorage.removeItem("unsaved");
    else sessionStorage.setItem("unsaved", JSON.stringify([...this.#unsaved.values()]));
  }

  async #send() {
    while (!this.empty) {
      const [answer] = this.#unsaved.values();
      try {
        await post("/api/answer", { ...answer, active_seconds: this.#seconds() });
      } catch (error) {
        this.#refused(error);
      }
      if (this.#unsaved.get(answer.question) === answer) this.#unsaved.delete(answer.question);
      this.#keep();
    }
    this.#sending = null;
  }
}
