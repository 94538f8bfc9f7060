/** The questions of a case as a form: one of them is the current one, and takes the digits that are typed. */

import { byId, element, keyLabel, say } from "./dom.js";

const CHOICE_KEYS = "1234567890"; // further choices are reached by Tab and the arrow keys
const TYPING_MS = 400; // a number or a text is saved when typing pauses

/** Whether a value answers a question. */
const answered = (value) => value != null && value !== "" && !(Array.isArray(value) && value.length === 0);

/** An answer in words, for what was answered before. */
export function answerText(question, value) {
  if (!answered(value)) return "no answer";
  const label = (one) => question.choices.find((choice) => choice.value === one)?.label ?? one;
  const at = `image ${value.image + 1}, x ${value.x}, y ${value.y}`;
  if (question.kind === "point") return at;
  if (question.kind === "box") return `${at}, ${value.width} by ${value.height} pixels`;
  return Array.isArray(value) ? value.map(label).join(", ") : String(label(value));
}

export class Questions {
  values = {};
  #form = byId("questions");
  #questions = [];
  #fields = new Map(); // question name -> {node, show(value), activate?()}
  #current = 0;
  #typed = ""; // the first characters of a category, such as the 4 of 4a
  #later = new Map(); // question name -> timer of an answer that is being typed
  #viewer;
  #answered;

  /** `answered(question, value)` is told every new value. */
  constructor(viewer, answered) {
    this.#viewer = viewer;
    this.#answered = answered;
  }

  /** Show the questions of a task with the values saved so far. */
  show(questions, values, readOnly = false) {
    this.values = { ...values };
    this.#questions = questions;
    this.#typed = "";
    this.#fields.clear();
    this.#form.replaceChildren(...questions.map((question, n) => this.#fieldset(question, n)));
    this.#form.toggleAttribute("inert", readOnly);
    for (const question of questions) this.#show(question);
    const open = questions.findIndex((question) => question.required && !answered(this.values[question.name]));
    this.#setCurrent(Math.max(open, 0));
    this.#mark();
  }

  get #question() {
    return this.#questions[this.#current];
  }

  #fieldset(question, n) {
    const hint = element("p", { class: "note", id: `help-${n}`, hidden: !question.help }, question.help);
    const needed = question.required ? null : element("span", { class: "optional" }, " optional");
    const node = element(
      "fieldset",
      { "aria-describedby": question.help ? hint.id : null, onfocusin: () => this.#setCurrent(n) },
      element("legend", {}, question.label, needed),
      hint,
    );
    const field = {
      choice: () => this.#choices(question, n),
      birads: () => this.#choices(question, n),
      scale: () => this.#scale(question),
      text: () => this.#text(question),
      point: () => this.#place(question),
      box: () => this.#place(question),
    }[question.kind]();
    node.append(...field.nodes);
    this.#fields.set(question.name, { ...field, node });
    return node;
  }

  #choices(question, n) {
    const type = question.multiple ? "checkbox" : "radio";
    const inputs = question.choices.map(({ value }, c) => {
      const listener = () => this.#choose(question, value, input.checked);
      const input = element("input", { type, name: `question-${n}`, id: `question-${n}-${c}`, onchange: listener });
      return input;
    });
    const key = (choice, c) => (question.kind === "birads" ? choice.value : CHOICE_KEYS[c]);
    const labels = question.choices.map((choice, c) => {
      const words = choice.label === key(choice, c) ? null : element("span", {}, choice.label);
      return element("label", {}, inputs[c], key(choice, c) ? keyLabel(key(choice, c)) : null, words);
    });
    const short = question.choices.every((choice, c) => choice.label === key(choice, c));
    const show = (value) => {
      const chosen = [value].flat();
      for (const [c, choice] of question.choices.entries()) inputs[c].checked = chosen.includes(choice.value);
    };
    return { nodes: [element("div", { class: short ? "choices short" : "choices" }, ...labels)], show };
  }

  #scale(question) {
    const { low, high, step } = question;
    const slider = element("input", { type: "range", min: low, max: high, step, "aria-label": question.label });
    const number = element("input", {
      type: "number",
      min: low,
      max: high,
      step,
      "aria-label": `${question.label}, as a number`,
    });
    const take = (input) => {
      const valid = number.validity.valid || input === slider;
      number.toggleAttribute("aria-invalid", !valid);
      if (valid) this.#set(question, input.value === "" ? null : Number(input.value), TYPING_MS);
      else say(`${question.label}: a number from ${low} to ${high}, please${step ? `, in steps of ${step}` : ""}.`);
    };
    for (const kind of ["input", "click"]) slider.addEventListener(kind, () => take(slider)); // a click in the middle is an answer
    number.addEventListener("input", () => take(number));
    number.addEventListener("wheel", () => number.blur()); // scrolling changes no answer
    const show = (value) => {
      slider.classList.toggle("unset", value == null);
      slider.value = value ?? (low + high) / 2;
      if (number !== document.activeElement || number.value === "") number.value = value ?? "";
    };
    const type = (key) => {
      number.value = "";
      number.focus({ preventScroll: true });
      number.value = key;
      take(number);
    };
    const ends = element(
      "div",
      { class: "scale" },
      element("span", {}, `${low}`),
      slider,
      element("span", {}, `${high}`),
      number,
    );
    return { nodes: [ends], show, type, problem: () => !number.validity.valid };
  }

  #text(question) {
    const text = element("textarea", { rows: 3, maxlength: 2000, "aria-label": question.label });
    text.addEventListener("input", () => this.#set(question, text.value.trim() === "" ? null : text.value, TYPING_MS));
    const show = (value) => {
      if (text !== document.activeElement) text.value = value ?? "";
    };
    const keys = element("p", { class: "note" }, keyLabel("T"), " writes, ", keyLabel("Esc"), " leaves the field.");
    return { nodes: [text, keys], show, activate: () => text.focus() };
  }

  #place(question) {
    const words = element("span", { class: "value" });
    const start = () => {
      const label = question.kind === "box" ? "Draw a box" : "Set a point";
      this.#viewer.drawing.use({ kind: question.kind, label, done: (mark) => this.#set(question, mark) });
    };
    const button = { type: "button" };
    const remove = element("button", { ...button, onclick: () => this.#set(question, null) }, "Remove");
    const draw = element(
      "button",
      { ...button, onclick: start },
      question.kind === "box" ? "Draw a box " : "Set a point ",
      keyLabel("D"),
    );
    const show = (value) => {
      words.textContent = answered(value) ? answerText(question, value) : "";
      remove.hidden = !answered(value);
    };
    return { nodes: [element("div", { class: "place" }, draw, remove, words)], show, draw: start };
  }

  #show(question) {
    const value = this.values[question.name];
    const { node, show } = this.#fields.get(question.name);
    show(value);
    node.classList.toggle("answered", answered(value));
  }

  /** Points and boxes are drawn in the images. */
  #mark() {
    const places = this.#questions.filter(({ kind, name }) => ["point", "box"].includes(kind) && this.values[name]);
    this.#viewer.drawing.setAnswers(
      places.map(({ kind, name, label }) => ({ kind, text: label, ...this.values[name] })),
    );
  }

  #choose(question, value, chosen = true) {
    if (question.multiple) {
      const before = this.values[question.name] ?? [];
      const values = question.choices.map((choice) => choice.value);
      const after = values.filter((one) => (one === value ? chosen : before.includes(one)));
      this.#set(question, after.length ? after : null);
    } else this.#set(question, value);
  }

  #set(question, value, wait = 0) {
    this.values[question.name] = value;
    this.#show(question);
    this.#mark();
    clearTimeout(this.#later.get(question.name)?.timer);
    const tell = () => {
      this.#later.delete(question.name);
      this.#answered(question, value);
    };
    if (wait) this.#later.set(question.name, { tell, timer: setTimeout(tell, wait) });
    else tell();
  }

  /** Tell at once what is still being typed. */
  flush() {
    for (const { tell, timer } of [...this.#later.values()]) {
      clearTimeout(timer);
      tell();
    }
  }

  /** Go to the first question that keeps the reading from being submitted; return whether there is one. */
  refuseToSubmit() {
    const open = this.#questions.findIndex(({ name, required }) => {
      return this.#fields.get(name).problem?.() || (required && !answered(this.values[name]));
    });
    if (open < 0) return false;
    this.#go(open);
    say(`Please answer: ${this.#question.label}`);
    return true;
  }

  #setCurrent(n) {
    if (n !== this.#current) this.#typed = "";
    this.#current = n;
    for (const [index, node] of [...this.#form.children].entries()) node.setAttribute("aria-current", index === n);
  }

  #go(n) {
    this.#setCurrent(n);
    const { node } = this.#fields.get(this.#question.name);
    if (document.activeElement !== document.body && !node.contains(document.activeElement)) this.#viewer.focus();
    node.scrollIntoView({ block: "nearest" });
    say(this.#question.label);
  }

  /** Do what a key means here; return whether it means anything. */
  key(event) {
    const question = this.#question;
    if (!question) return false;
    const key = event.key.toLowerCase();
    const count = this.#questions.length;
    if (key === "n") this.#go((this.#current + (event.shiftKey ? count - 1 : 1)) % count);
    else if (key === "t") return this.#activateFirst("text", "activate");
    else if (key === "d")
      return this.#activateFirst(["point", "box"].includes(question.kind) ? question.kind : /point|box/, "draw");
    else if (question.kind === "birads") return this.#typeCategory(question, key);
    else if (!/^\d$/.test(key)) return false;
    else if (question.kind === "choice") {
      const choice = question.choices[CHOICE_KEYS.indexOf(key)];
      if (!choice) return false;
      const before = this.values[question.name];
      if (before === choice.value && !question.required) this.#set(question, null);
      else this.#choose(question, choice.value, !before?.includes(choice.value));
      if (!question.multiple) this.#advance();
    } else if (question.kind === "scale") this.#fields.get(question.name).type(key);
    else return false;
    return true;
  }

  /** Make the current question, or else the first one of a kind, ready for typing or drawing. */
  #activateFirst(kind, action) {
    const fits = (question) => question.kind.match(kind);
    const n = fits(this.#question) ? this.#current : this.#questions.findIndex(fits);
    if (n < 0) return false;
    this.#go(n);
    this.#fields.get(this.#question.name)[action]();
    return true;
  }

  #typeCategory(question, key) {
    if (key.length > 1) return false;
    const values = question.choices.map(({ value }) => value);
    for (const typed of [this.#typed + key, key]) {
      const longer = values.filter((value) => value.startsWith(typed) && value !== typed);
      if (values.includes(typed)) {
        this.#choose(question, typed);
        this.#typed = longer.length ? typed : "";
        if (!longer.length) this.#advance();
        return true;
      }
      if (longer.length) {
        this.#typed = typed;
        say(`${typed}, then ${longer.map((value) => value.slice(typed.length)).join(", ")}.`);
        return true;
      }
    }
    this.#typed = "";
    return false;
  }

  /** Go on to the next open question that a key answers, or else to one before it that must be answered. */
  #advance() {
    const open = ({ name }) => !answered(this.values[name]);
    const byKey = ({ kind, required }) => required || ["choice", "birads", "scale"].includes(kind);
    const later = this.#questions.find((question, n) => n > this.#current && open(question) && byKey(question));
    const next = later ?? this.#questions.find((question) => open(question) && question.required);
    if (next) this.#go(this.#questions.indexOf(next));
    if (!this.#questions.some((question) => open(question) && question.required)) say("Enter submits this case.");
  }
}
