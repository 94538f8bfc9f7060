/** The images of a case side by side: keys and pointer, measurement, marks, loops, and what the model marks. */

import { byId, element, keyLabel, say } from "./dom.js";
import { lengthText, View } from "./view.js";

const PAN_STEP = 40; // CSS pixels
const GREY_STEP = 8; // grey values
const ZOOM_STEP = 1.25;
const FRAME_MS = 50; // where a loop does not say how fast it is
const CLICK = 4; // CSS pixels that a click may move
const FAR = 10; // image pixels that the crosshair moves with Shift
const OPACITY_STEP = 0.1;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class Viewer {
  views = [];
  #grid = byId("views");
  #store;
  #active = 0;
  #enlarged = false;
  #measures = [];
  #answers = []; // marks of the questions
  #overlays = []; // {image, kind, label, shown, bitmap | box, frame?}
  #overlaysShown = true;
  #opacity = 0.4;
  #tool = null; // {kind: "measure" | "point" | "box", label, done, first}
  #held = new Set();
  #players = new Map(); // view -> time of its last frame
  #ticking = false;
  #actions;

  constructor(store) {
    this.#store = store;
    new ResizeObserver(() => this.#arrange()).observe(this.#grid);
    document.addEventListener("keyup", (event) => this.#held.delete(event.key.toLowerCase()));
    window.addEventListener("blur", () => this.#held.clear());
    this.#actions = {
      z: () => this.active.fit(),
      x: () => this.active.exact(),
      f: () => this.active.flip(),
      r: () => this.active.reset(),
      e: () => this.enlarge(!this.#enlarged),
      v: () => this.activate((this.#active + 1) % this.views.length),
      m: () => this.#toggleMeasuring(),
      o: () => this.toggleOverlays(),
      "+": () => this.active.zoom(ZOOM_STEP),
      "=": () => this.active.zoom(ZOOM_STEP),
      "-": () => this.active.zoom(1 / ZOOM_STEP),
      ",": () => this.#step(-1),
      ".": () => this.#step(1),
      "[": () => this.setOpacity(this.#opacity - OPACITY_STEP),
      "]": () => this.setOpacity(this.#opacity + OPACITY_STEP),
      " ": () => (this.#tool ? this.#set(this.active.cross) : this.#play(this.active)),
      Escape: () => (this.#tool ? this.use(null) : this.enlarge(false)),
      Delete: () => this.#measures.pop() && this.#mark(),
      Backspace: () => this.#measures.pop() && this.#mark(),
    };
    for (const button of byId("tools").querySelectorAll("[data-key]")) {
      button.addEventListener("click", () => this.#actions[button.dataset.key]());
    }
  }

  get active() {
    return this.views[this.#active];
  }

  /** Show the images of a task; resolves once the first frame of each is drawn. */
  async show(images) {
    this.#stopAll();
    this.#active = 0;
    this.#measures = [];
    this.views = [];
    this.#grid.replaceChildren(...images.map((image, index) => this.#figure(image, index)));
    this.use(null);
    this.enlarge(false);
    await Promise.all(this.views.map((view) => view.seek(0)));
  }

  #figure(image, index) {
    const name = image.label || `Image ${index + 1}`;
    const canvas = element("canvas", { tabindex: "0", role: "application", "aria-roledescription": "image viewer" });
    canvas.setAttribute("aria-label", `${name}, ${image.width} by ${image.height} pixels. Press ? for the keys.`);
    const view = new View(image, canvas, this.#store);
    this.views.push(view);
    this.#listen(view, canvas, index);
    const figure = element("figure", { class: "view" }, element("div", { class: "frame" }, canvas));
    if (image.frames > 1) figure.append(this.#loopControls(view));
    figure.append(element("figcaption", {}, name));
    return figure;
  }

  #loopControls(view) {
    const last = view.image.frames - 1;
    const slider = element("input", { type: "range", min: 0, max: last, value: 0, "aria-label": "Frame of the loop" });
    const shown = element("output", {}, `1 / ${last + 1}`);
    const button = element("button", { type: "button", onclick: () => this.#play(view) }, "Play ", keyLabel("Space"));
    slider.addEventListener("input", () => {
      this.#players.delete(view);
      this.#seek(view, Number(slider.value));
    });
    view.showLoop = () => {
      slider.value = view.frame;
      shown.textContent = `${view.frame + 1} / ${last + 1}`;
      button.firstChild.textContent = this.#players.has(view) ? "Pause " : "Play ";
    };
    return element("div", { class: "loop" }, button, slider, shown);
  }

  /** Give each image as much of the area as the grid can. */
  #arrange() {
    if (!this.views.length || !this.#grid.clientWidth) return;
    const shown = this.#enlarged ? [this.active] : this.views;
    const { clientWidth, clientHeight } = this.#grid;
    const scale = (columns) => {
      const rows = Math.ceil(shown.length / columns);
      return Math.min(
        ...shown.map(({ image }) =>
          Math.min(clientWidth / columns / image.width, (clientHeight / rows - 40) / image.height),
        ),
      );
    };
    const choices = shown.map((_, n) => n + 1);
    const columns = choices.reduce((best, n) => (scale(n) > scale(best) ? n : best));
    this.#grid.style.setProperty("--columns", columns);
    this.#grid.style.setProperty("--rows", Math.ceil(shown.length / columns));
    for (const view of shown) {
      const { clientWidth: width, clientHeight: height } = view.canvas.parentElement;
      view.resize(width, height);
    }
  }

  activate(index) {
    this.#active = index;
    if (this.#enlarged) this.enlarge(true);
    this.focus();
  }

  /** Give the keyboard to the active image. */
  focus() {
    this.active?.canvas.focus({ preventScroll: true });
  }

  enlarge(enlarged) {
    this.#enlarged = enlarged && this.views.length > 1;
    for (const [n, { canvas }] of this.views.entries()) {
      canvas.closest("figure").hidden = this.#enlarged && n !== this.#active;
    }
    this.#arrange();
  }

  /** Do what a key means; return whether it means anything here. */
  key(event) {
    if (!this.active) return false;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (key === "w") {
      this.#held.add(key);
      return true;
    }
    const digit = event.shiftKey && event.code.match(/^Digit([1-9])$/);
    if (digit && Number(digit[1]) <= this.views.length) {
      this.activate(digit[1] - 1);
      return true;
    }
    if (key in ARROWS) {
      const [right, down] = ARROWS[key];
      if (this.#held.has("w")) this.active.adjust(right * GREY_STEP, -down * GREY_STEP);
      else if (this.#tool) this.#moveCross(right, down, event.shiftKey ? FAR : 1);
      else this.active.pan(-right * PAN_STEP, -down * PAN_STEP);
      return true;
    }
    const action = this.#actions[key];
    action?.();
    return action !== undefined;
  }

  #listen(view, canvas, index) {
    const pointers = new Map();
    let start = null;
    canvas.addEventListener("focus", () => {
      if (this.#active === index) return;
      this.#active = index;
      this.#placeCross();
    });
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
    canvas.addEventListener("dblclick", () => !this.#tool && this.enlarge(!this.#enlarged));
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      view.zoom(ZOOM_STEP ** (-event.deltaY / 100), view.position(event));
    }, { passive: false }); // prettier-ignore
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, event);
      canvas.focus({ preventScroll: true });
      start = event;
      if (this.#tool && event.button === 0) this.#set(view.position(event));
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = pointers.get(event.pointerId);
      if (!before) {
        if (this.#tool && index === this.#active) this.#placeCross(view.position(event));
        return;
      }
      const [right, down] = [event.clientX - before.clientX, event.clientY - before.clientY];
      if (pointers.size === 2) {
        const [other] = [...pointers.values()].filter((pointer) => pointer.pointerId !== event.pointerId);
        const apart = (pointer) => Math.hypot(pointer.clientX - other.clientX, pointer.clientY - other.clientY);
        view.zoom(apart(event) / Math.max(apart(before), 1), view.position(other));
      } else if (start.button === 2 || this.#held.has("w")) view.adjust(right, -down);
      else if (this.#tool && start.button === 0) this.#placeCross(view.position(event));
      else view.pan(right, down);
      pointers.set(event.pointerId, event);
    });
    const end = (event) => {
      const moved = start && Math.hypot(event.clientX - start.clientX, event.clientY - start.clientY) > CLICK;
      if (pointers.delete(event.pointerId) && moved && this.#tool?.first && event.type === "pointerup") {
        this.#set(view.position(event));
      }
    };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", end);
  }

  // Tools: a measurement, or an answer that is a point or a box. A click, or Space at the crosshair, sets an end.

  /** Begin to draw `{kind, label, done(mark)}`; null puts the tool away. */
  use(tool) {
    for (const view of this.views) view.cross = null;
    this.#tool = tool && { ...tool, first: null };
    byId("tools").querySelector("[data-key=m]").setAttribute("aria-pressed", tool?.kind === "measure");
    this.#grid.classList.toggle("drawing", tool !== null);
    if (tool) {
      this.#players.delete(this.active);
      this.#placeCross(this.active.inside(this.active));
      this.focus();
      say(`${tool.label}: click, or move the crosshair by the arrow keys and press Space.`);
    }
    this.#mark();
  }

  #toggleMeasuring() {
    const measuring = this.#tool?.kind === "measure";
    this.use(measuring ? null : { kind: "measure", label: "Measure", done: () => {} });
    if (measuring) say("");
  }

  #placeCross(position = null) {
    if (!this.#tool) return;
    for (const view of this.views) if (view !== this.active) view.cross = null;
    this.active.cross = position ?? this.active.inside(this.active);
    this.#mark();
  }

  #moveCross(right, down, step) {
    const view = this.active;
    const { x, y } = view.cross;
    this.#placeCross(view.inside({ x: x + (view.flipped ? -right : right) * step, y: y + down * step }));
  }

  #set(position) {
    const tool = this.#tool;
    const { image, frame } = this.active;
    const place = { image: this.#active, frame };
    const before = tool.first;
    if (tool.kind === "point") {
      this.use(null);
      tool.done({ ...place, ...position });
    } else if (before === null || before.image !== this.#active || before.frame !== frame) {
      tool.first = { ...place, ...position };
      this.#placeCross(position);
      say(`${tool.label}: first ${tool.kind === "box" ? "corner" : "end"} at ${position.x}, ${position.y}. Set the other one.`);
    } else if (tool.kind === "measure") {
      this.#measures.push({ ...place, a: before, b: position });
      tool.first = null;
      this.#mark();
      say(`Distance: ${lengthText(image, before, position)}.`);
    } else if (before.x === position.x || before.y === position.y) {
      say(`${tool.label}: a box needs a width and a height.`);
    } else {
      const [x, y] = [Math.min(before.x, position.x), Math.min(before.y, position.y)];
      const round = (value) => Math.round(Math.abs(value) * 10) / 10;
      const box = { x, y, width: round(before.x - position.x), height: round(before.y - position.y) };
      this.use(null);
      tool.done({ ...place, ...box });
    }
  }

  /** The answers that are drawn: {kind, image, frame, text, ...positions}. */
  setAnswers(marks) {
    this.#answers = marks.map((mark) => ({ ...mark, ink: "answer" }));
    this.#mark();
  }

  /** Give each view its marks, and draw it. */
  #mark() {
    const { first, kind } = this.#tool ?? {};
    for (const [n, view] of this.views.entries()) {
      const lines = this.#measures.filter(({ image }) => image === n);
      view.marks = this.#answers.filter(({ image }) => image === n);
      for (const { a, b, frame } of lines) {
        view.marks.push({ kind: "line", ink: "measure", a, b, frame, text: lengthText(view.image, a, b) });
      }
      if (first?.image === n && view.cross) {
        const [a, b] = [first, view.cross];
        const text = kind === "measure" ? lengthText(view.image, a, b) : "";
        const box = { x: Math.min(a.x, b.x), y: Math.min(a.y, b.y), width: Math.abs(a.x - b.x), height: Math.abs(a.y - b.y) };
        view.marks.push(kind === "box" ? { kind, ink: "answer", ...box } : { kind: "line", ink: "measure", a, b, text });
      }
      const overlays = this.#overlaysShown ? this.#overlays.filter(({ image, shown }) => image === n && shown) : [];
      view.overlays = overlays.map((overlay) => ({ ...overlay, opacity: this.#opacity }));
      view.draw();
    }
  }

  // What the model marks, while the stage shows it.

  /** Show maps, masks and regions of the aid; null shows none. Returns the list, whose `shown` may be changed. */
  setAid(aid) {
    const pictures = [...(aid?.maps ?? []), ...(aid?.masks ?? [])];
    const regions = (aid?.regions ?? []).map(({ image, box }) => ({ image, box, label: "Region that the model saw" }));
    const overlays = [...pictures, ...regions].map((overlay) => ({ ...overlay, shown: true }));
    this.#overlays = overlays;
    for (const overlay of overlays.filter(({ url }) => url)) {
      this.#store.load(overlay.url).then((bitmap) => {
        overlay.bitmap = bitmap;
        if (this.#overlays === overlays) this.#mark();
      }, (error) => say(`${overlay.label} cannot be shown. ${error.message}`)); // prettier-ignore
    }
    this.#overlaysShown = true;
    byId("tools").classList.toggle("aided", overlays.length > 0);
    this.#mark();
    return overlays;
  }

  overlaysChanged() {
    this.#overlaysShown = true;
    this.#mark();
  }

  toggleOverlays() {
    if (!this.#overlays.length) return;
    this.#overlaysShown = !this.#overlaysShown;
    byId("tools").querySelector("[data-key=o]").setAttribute("aria-pressed", this.#overlaysShown);
    say(this.#overlaysShown ? "The marks of the model are shown." : "The marks of the model are hidden.");
    this.#mark();
  }

  get opacity() {
    return this.#opacity;
  }

  setOpacity(opacity) {
    this.#opacity = Math.min(Math.max(opacity, 0), 1);
    this.opacityChanged?.();
    this.#mark();
  }

  // Loops

  async #seek(view, frame) {
    await view.seek(frame).catch((error) => say(`The frame cannot be shown. ${error.message}`));
    view.showLoop?.();
  }

  #step(frames) {
    const view = this.active;
    this.#players.delete(view);
    this.#seek(view, (view.frame + frames + view.image.frames) % view.image.frames);
  }

  #play(view) {
    if (view.image.frames < 2) return;
    if (this.#players.has(view)) this.#players.delete(view);
    else {
      this.#players.set(view, performance.now());
      if (!this.#ticking) this.#tick();
    }
    view.showLoop();
  }

  #stopAll() {
    this.#players.clear();
  }

  /** Show the next frames of the loops that play; a frame that is not there yet holds its loop up. */
  #advance(now) {
    for (const [view, last] of this.#players) {
      const length = view.image.frame_ms || FRAME_MS;
      const due = Math.floor((now - last) / length);
      if (due < 1) continue;
      const next = (view.frame + 1) % view.image.frames;
      const far = (view.frame + due) % view.image.frames;
      const frame = view.has(far) ? far : next; // frames are left out where the screen is slower than the loop
      this.#players.set(view, view.has(frame) ? last + due * length : now);
      this.#seek(view, frame);
    }
    this.#tick();
  }

  #tick() {
    this.#ticking = this.#players.size > 0;
    if (this.#ticking) requestAnimationFrame((now) => this.#advance(now));
  }

  /** Hide the images (a break), and stop the loops. */
  hide(hidden) {
    if (hidden) this.#stopAll();
    this.#grid.classList.toggle("away", hidden);
    for (const view of this.views) view.showLoop?.();
  }
}
