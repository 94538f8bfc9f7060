/** The page of a reader: one case after the other, from the state that the server sends. */

import { AnswerQueue, getState, post } from "./api.js";
import { showAid } from "./aid.js";
import { Clock } from "./clock.js";
import { byId, element, keyLabel, say, showSection, warn } from "./dom.js";
import { answerText, Questions } from "./questions.js";
import { ImageStore, inOrderOfUse } from "./store.js";
import { Viewer } from "./viewer.js";

const WAIT_MS = 20_000;

/** Whether the focused control itself uses a key. */
function usesKey(target, key) {
  if (target.matches("button, summary, a")) return key === "Enter" || key === " ";
  if (target.matches("[type=number]")) return /^(\d|\.|Backspace|Delete|Home|End|Arrow.*)$/.test(key);
  if (target.matches("[type=range]")) return /^(Home|End|Page.*|Arrow.*)$/.test(key);
  return target.matches("[type=radio], [type=checkbox]") && /^( |Arrow.*)$/.test(key);
}

export class Reading {
  #state;
  #paused = false;
  #busy = false;
  #clock = new Clock((idle) => say(idle ? "The clock stands still: there was no input for two minutes." : ""));
  #store = new ImageStore();
  #viewer = new Viewer(this.#store);
  #queue = new AnswerQueue(() => this.#seconds(), (error) => this.#refused(error)); // prettier-ignore
  #questions = new Questions(this.#viewer, ({ name }, value) => this.#queue.save(this.#task.id, name, value));
  #images = "";
  #again = 0;

  constructor(state) {
    byId("submit").addEventListener("click", () => this.#submit());
    byId("undo").addEventListener("click", () => this.#undo());
    byId("pause").addEventListener("click", () => this.#pause(!this.#paused));
    for (const name of ["instructions", "keys"]) {
      byId(`open-${name}`).addEventListener("click", () => this.#open(name));
      byId(name).addEventListener("close", () => this.#closed());
    }
    byId("open-keys").hidden = false;
    this.#listen();
    const { instructions } = state.study;
    byId("open-instructions").hidden = !instructions;
    byId("instructions-text").replaceChildren(...instructions.split(/\n\s*\n/).map((text) => element("p", {}, text)));
    this.show(state);
    if (instructions && state.task && state.progress.done === 0) this.#open("instructions");
  }

  get #task() {
    return this.#state.task;
  }

  #seconds() {
    this.#clock.tick();
    return Math.round(this.#clock.seconds * 10) / 10;
  }

  /** Show a state of the server. */
  show(state) {
    this.#state = state;
    const { study, progress, task } = state;
    clearTimeout(this.#again);
    document.title = study.title;
    byId("title").textContent = study.title;
    const part = progress.sessions > 1 ? `, session ${progress.session} of ${progress.sessions}` : "";
    const where = task
      ? `Reading ${task.number} of ${progress.total}`
      : `${progress.done} of ${progress.total} readings`;
    byId("count").textContent = where + part;
    Object.assign(byId("bar"), { max: Math.max(progress.total, 1), value: progress.done });
    byId("progress").hidden = false;
    byId("undo").hidden = !state.can_undo;
    byId("pause").hidden = !task;
    byId("stage").hidden = !task;
    this.#clock.block("no case", !task);
    if (task) this.#showTask(task, state.upcoming);
    else this.#showMessage(state);
  }

  #showMessage({ progress, finished, opens_at: opensAt }) {
    showSection("message");
    this.#store.want([]);
    this.#images = "";
    const opens = opensAt && new Date(opensAt).toLocaleString("en-GB", { dateStyle: "full", timeStyle: "short" });
    const [title, text] = finished
      ? ["Finished", `All ${progress.total} readings are done. Thank you.`]
      : opensAt
        ? [
            `Session ${progress.session} opens later`,
            `It opens on ${opens}. You may close this page and open your link again then.`,
          ]
        : ["No case waits for you now", "This page looks again by itself."];
    byId("message-title").textContent = title;
    byId("message-text").textContent = text;
    if (!finished) this.#again = setTimeout(() => this.#refresh(), WAIT_MS);
  }

  #showTask(task, upcoming) {
    const feedback = task.phase === "feedback";
    showSection("reading");
    byId("stage").textContent = task.training ? `Training case: ${task.stage_label}` : task.stage_label;
    byId("stage").dataset.stage = task.stage;
    this.#store.want(inOrderOfUse(task.images, upcoming));
    this.#clock.start(task.active_seconds);
    this.#clock.block("feedback", feedback);
    this.#showImages(task.images);
    this.#questions.show(task.questions, { ...task.answers, ...this.#queue.resume(task.id) }, feedback);
    showAid(task.aid);
    this.#viewer.setMasks(task.masks ?? []);
    this.#showEarlier(task);
    byId("feedback").hidden = !feedback;
    byId("feedback").replaceChildren(
      element("h2", {}, "Training"),
      element("p", {}, "The reference class is ", element("strong", {}, task.feedback?.truth ?? "unknown"), "."),
    );
    byId("submit").replaceChildren(feedback ? "Go on " : "Submit ", keyLabel("Enter"));
    byId("panel").scrollTop = 0;
  }

  /** Show the images of the task, unless they are those that are shown, such as in the next stage of the same case. */
  async #showImages(images) {
    const ids = images.map(({ id }) => id).join();
    if (this.#images === ids) this.#viewer.drawing.use(null);
    else {
      this.#images = ids;
      this.#clock.block("loading", true);
      await this.#viewer.show(images).catch((error) => warn(`An image cannot be shown. ${error.message}`));
      if (this.#images !== ids) return;
      this.#clock.block("loading", false);
    }
    this.#focus();
  }

  /** Give the keyboard to the image, unless a dialog has it. */
  #focus() {
    if (!document.querySelector("dialog[open]")) this.#viewer.focus();
  }

  #showEarlier({ earlier, questions }) {
    byId("earlier").hidden = earlier.length === 0;
    const rows = (answers) =>
      questions
        .filter(({ name }) => name in answers)
        .flatMap((question) => [
          element("dt", {}, question.label),
          element("dd", {}, answerText(question, answers[question.name])),
        ]);
    const list = ({ label, answers }) => [element("h2", {}, label), element("dl", {}, ...rows(answers))];
    byId("earlier").replaceChildren(...earlier.flatMap(list));
  }

  // What the reader does

  async #submit() {
    if (this.#busy || this.#paused || !this.#task) return;
    const { id, phase } = this.#task;
    if (phase === "feedback") return void this.#move(() => post("/api/next", { task: id }));
    if (this.#questions.refuseToSubmit()) return;
    this.#questions.flush();
    await this.#move(async () => {
      await this.#queue.flush();
      return post("/api/submit", { task: id, active_seconds: this.#seconds() });
    });
  }

  async #undo() {
    if (this.#busy || this.#paused) return;
    if (!this.#state.can_undo) return void say("There is no reading to reopen.");
    this.#questions.flush();
    await this.#move(async () => {
      await this.#queue.flush();
      return post("/api/undo", {}, { once: true });
    });
    if (this.#task) say("The last reading is open again.");
  }

  /** Wait for the next state and show it; until then nothing can be answered. */
  async #move(ask) {
    this.#busy = true;
    byId("panel").inert = true;
    say("");
    let state = null;
    try {
      state = await ask();
      warn("");
    } catch (error) {
      await this.#refused(error);
    }
    byId("panel").inert = this.#paused;
    this.#busy = false;
    if (state) this.show(state);
  }

  /** The server did not take something: say so, and show how things stand where this page was out of date. */
  async #refused(error) {
    const lost = error.status === undefined; // no answer to what is asked only once
    if (error.status !== 409 && !lost) return warn(error.message);
    if (!error.repeated)
      warn(lost ? "The server did not answer." : `${error.message} This page shows how things stand now.`);
    return this.#refresh();
  }

  async #refresh() {
    try {
      this.show(await getState());
    } catch (error) {
      warn(error.message);
    }
  }

  #pause(paused) {
    if (!this.#task) return;
    this.#paused = paused;
    this.#clock.block("paused", paused);
    this.#viewer.hide(paused);
    byId("away").hidden = !paused;
    byId("panel").inert = paused;
    byId("tools").inert = paused;
    byId("undo").disabled = paused;
    byId("pause").setAttribute("aria-pressed", paused);
    say(paused ? "Paused. The clock stands still." : "");
    if (!paused) this.#viewer.focus();
  }

  #open(name) {
    this.#clock.block("dialog", true);
    byId(name).showModal();
  }

  #closed() {
    this.#clock.block("dialog", false);
    this.#viewer.focus();
  }

  // Keys

  #listen() {
    let byPointer = false;
    document.addEventListener("pointerdown", () => (byPointer = true), true);
    document.addEventListener("keydown", (event) => {
      byPointer = false;
      this.#key(event);
    });
    // After a click on a control, keys belong to the image again: an arrow key moves it, and changes no answer.
    document.addEventListener("click", ({ target }) => {
      if (
        byPointer &&
        this.#task &&
        target.closest("#panel, #tools, header") &&
        !target.closest("textarea, [type=number]")
      ) {
        setTimeout(() => this.#focus());
      }
    });
    window.addEventListener("beforeunload", (event) => {
      this.#questions.flush();
      if (!this.#queue.empty) event.preventDefault();
    });
  }

  #key(event) {
    if (document.querySelector("dialog[open]") || event.isComposing || event.altKey) return;
    const text = event.target.matches("textarea");
    if (event.ctrlKey || event.metaKey) {
      const action = { Enter: () => this.#submit(), z: () => text || this.#undo() }[event.key];
      action?.();
      if (action && !text) event.preventDefault();
    } else if (text) {
      if (event.key === "Escape") this.#viewer.focus();
    } else if (!usesKey(event.target, event.key) && this.#act(event)) event.preventDefault();
  }

  /** Do what a key means; return whether it means anything. */
  #act(event) {
    const actions = {
      Enter: () => this.#submit(),
      u: () => this.#undo(),
      p: () => this.#pause(!this.#paused),
      i: () => byId("open-instructions").hidden || this.#open("instructions"),
      "?": () => this.#open("keys"),
    };
    const answering = this.#task?.phase === "answer" && !this.#busy && !this.#paused;
    if (answering && this.#questions.key(event)) return true;
    if (this.#task && !this.#paused && this.#viewer.key(event)) return true;
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    action?.();
    return action !== undefined;
  }
}
