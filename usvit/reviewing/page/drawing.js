/** Measurements, and answers that are drawn: a click, or Space at the crosshair, sets a point or an end. */

import { byId, say } from "./dom.js";
import { lengthText } from "./view.js";

const FAR = 10; // image pixels that the crosshair moves with Shift
const round = (value) => Math.round(value * 10) / 10;

/** The box between two corners. */
function boxBetween(a, b) {
  const size = { width: round(Math.abs(a.x - b.x)), height: round(Math.abs(a.y - b.y)) };
  return { x: Math.min(a.x, b.x), y: Math.min(a.y, b.y), ...size };
}

export class Drawing {
  #viewer;
  #tool = null; // {kind: "measure" | "point" | "box", label, done(mark)}
  #first = null; // {image, frame, x, y}: the end that is set
  #measures = [];
  #answers = [];

  constructor(viewer) {
    this.#viewer = viewer;
  }

  get active() {
    return this.#tool !== null;
  }

  get begun() {
    return this.#first !== null;
  }

  /** Forget the measurements of the case before. */
  clear() {
    this.#measures = [];
    this.use(null);
  }

  /** Take a tool; null puts it away. */
  use(tool) {
    this.#tool = tool;
    this.#first = null;
    byId("tools")
      .querySelector("[data-key=m]")
      .setAttribute("aria-pressed", tool?.kind === "measure");
    byId("views").classList.toggle("drawing", tool !== null);
    this.place();
    if (!tool) return;
    this.#viewer.focus();
    say(`${tool.label}: click, or move the crosshair by the arrow keys and press Space.`);
  }

  toggleMeasuring() {
    const measuring = this.#tool?.kind === "measure";
    this.use(measuring ? null : { kind: "measure", label: "Measure" });
    if (measuring) say("");
  }

  removeLast() {
    this.#measures.pop();
    this.update();
  }

  /** Put the crosshair somewhere in the active view; by default, in its middle. */
  place(position = null) {
    const { views, active } = this.#viewer;
    for (const view of views) view.cross = null;
    if (this.#tool) active.cross = position ?? active.inside(active);
    this.update();
  }

  /** Move the crosshair as it is seen on the screen. */
  move(right, down, far) {
    const view = this.#viewer.active;
    const step = far ? FAR : 1;
    const { x, y } = view.cross;
    this.place(view.inside({ x: x + (view.flipped ? -right : right) * step, y: y + down * step }));
  }

  /** Set the point, or the next end, in the active view; by default, at the crosshair. */
  set(position = this.#viewer.active.cross) {
    const { active, views } = this.#viewer;
    const { kind, label, done } = this.#tool;
    const place = { image: views.indexOf(active), frame: active.frame };
    const first = this.#first;
    if (kind === "point") {
      this.use(null);
      done({ ...place, ...position });
    } else if (first === null || first.image !== place.image || first.frame !== place.frame) {
      this.#first = { ...place, ...position };
      this.place(position);
      const end = kind === "box" ? "corner" : "end";
      say(`${label}: first ${end} at ${position.x}, ${position.y}. Set the other one.`);
    } else if (kind === "measure") {
      this.#measures.push({ kind: "line", ...place, a: first, b: position });
      this.#first = null;
      this.update();
      say(`Distance: ${lengthText(active.image, first, position)}.`);
    } else if (first.x === position.x || first.y === position.y) {
      say(`${label}: a box needs a width and a height.`);
    } else {
      this.use(null);
      done({ ...place, ...boxBetween(first, position) });
    }
  }

  /** Draw these answers: {kind, image, frame, text, ...positions}. */
  setAnswers(marks) {
    this.#answers = marks.map((mark) => ({ ...mark, ink: "answer" }));
    this.update();
  }

  /** Give each view its marks, and draw it. */
  update() {
    for (const [n, view] of this.#viewer.views.entries()) {
      const lines = this.#measures.filter(({ image }) => image === n);
      const open = this.#first?.image === n && view.cross ? [this.#open(view.cross)] : [];
      const measured = [...lines, ...open].map((line) =>
        line.kind === "line" ? { ...line, ink: "measure", text: lengthText(view.image, line.a, line.b) } : line,
      );
      view.marks = [...this.#answers.filter(({ image }) => image === n), ...measured];
      view.draw();
    }
  }

  /** What would be drawn if the other end were here. */
  #open(b) {
    if (this.#tool.kind === "box") return { kind: "box", ink: "answer", ...boxBetween(this.#first, b) };
    return { kind: "line", a: this.#first, b };
  }
}
