/** The images of a case side by side, and what keys and pointer do with them. */

import { byId, element, say } from "./dom.js";
import { Drawing } from "./drawing.js";
import { Loops } from "./loops.js";
import { View } from "./view.js";

const PAN_STEP = 40; // CSS pixels
const GREY_STEP = 8; // grey values
const ZOOM_STEP = 1.25;
const CLICK = 4; // CSS pixels that a click may move
const CAPTION = 40; // CSS pixels below an image
const OPACITY_STEP = 0.1;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class Viewer {
  views = [];
  drawing = new Drawing(this);
  #loops = new Loops();
  #grid = byId("views");
  #store;
  #active = 0;
  #enlarged = false;
  #masks = [];
  #masksShown = true;
  #opacity = 0.4;
  #held = new Set();
  #actions = {
    z: () => this.active.fit(),
    x: () => this.active.exact(),
    f: () => this.active.flip(),
    r: () => this.active.reset(),
    e: () => this.#enlarge(!this.#enlarged),
    v: () => this.#activate((this.#active + 1) % this.views.length),
    m: () => this.drawing.toggleMeasuring(),
    o: () => this.#toggleMasks(),
    "+": () => this.active.zoom(ZOOM_STEP),
    "=": () => this.active.zoom(ZOOM_STEP),
    "-": () => this.active.zoom(1 / ZOOM_STEP),
    ",": () => this.#loops.show(this.active, this.active.frame - 1),
    ".": () => this.#loops.show(this.active, this.active.frame + 1),
    k: () => this.#setOpacity(this.#opacity - OPACITY_STEP),
    l: () => this.#setOpacity(this.#opacity + OPACITY_STEP),
    " ": () => (this.drawing.active ? this.drawing.set() : this.#loops.toggle(this.active)),
    Escape: () => (this.drawing.active ? this.drawing.use(null) : this.#enlarge(false)),
    Delete: () => this.drawing.removeLast(),
    Backspace: () => this.drawing.removeLast(),
  };

  constructor(store) {
    this.#store = store;
    new ResizeObserver(() => this.#arrange()).observe(this.#grid);
    document.addEventListener("keyup", (event) => this.#held.delete(event.key.toLowerCase()));
    window.addEventListener("blur", () => this.#held.clear());
    for (const button of byId("tools").querySelectorAll("[data-key]")) {
      button.addEventListener("click", () => this.#actions[button.dataset.key]());
    }
  }

  get active() {
    return this.views[this.#active];
  }

  /** Show the images of a case; resolves once the first frame of each is drawn. Errors: those of the store. */
  async show(images) {
    this.#loops.clear();
    this.#active = 0;
    this.views = [];
    this.#grid.replaceChildren(...images.map((image, index) => this.#figure(image, index, images.length)));
    byId("tools").classList.toggle("several", images.length > 1);
    this.drawing.clear();
    this.#enlarge(false);
    await Promise.all(this.views.map((view) => view.seek(0)));
  }

  #figure(image, index, count) {
    const name = image.label || (count > 1 ? `Image ${index + 1}` : "");
    const label = `${name || "Image"}, ${image.width} by ${image.height} pixels. Press ? for the keys.`;
    const role = { role: "application", "aria-roledescription": "image viewer", "aria-label": label };
    const canvas = element("canvas", { tabindex: "0", ...role });
    const view = new View(image, canvas, this.#store);
    this.views.push(view);
    this.#listen(view, canvas, index);
    const controls = image.frames > 1 ? this.#loops.controls(view) : null;
    const caption = name ? element("figcaption", {}, name) : null;
    return element("figure", { class: "view" }, element("div", { class: "frame" }, canvas), controls, caption);
  }

  /** Give each image as much of the area as the grid can. */
  #arrange() {
    const { clientWidth, clientHeight } = this.#grid;
    if (!this.views.length || !clientWidth) return;
    const shown = this.#enlarged ? [this.active] : this.views;
    const rows = (columns) => Math.ceil(shown.length / columns);
    const scales = (columns) =>
      shown.map(({ image }) =>
        Math.min(clientWidth / columns / image.width, (clientHeight / rows(columns) - CAPTION) / image.height),
      );
    const choices = shown.map((_, n) => n + 1);
    const columns = choices.reduce((best, n) => (Math.min(...scales(n)) > Math.min(...scales(best)) ? n : best));
    this.#grid.style.setProperty("--columns", columns);
    this.#grid.style.setProperty("--rows", rows(columns));
    for (const view of shown) {
      const { clientWidth: width, clientHeight: height } = view.canvas.parentElement;
      view.resize(width, height);
    }
  }

  #activate(index) {
    this.#active = index;
    if (this.#enlarged) this.#enlarge(true);
    this.focus();
    if (this.drawing.active) this.drawing.place();
  }

  /** Give the keyboard to the active image. */
  focus() {
    this.active?.canvas.focus({ preventScroll: true });
  }

  #enlarge(enlarged) {
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
    const digit = event.shiftKey && event.code.match(/^Digit([1-9])$/);
    if (key === "w") this.#held.add(key);
    else if (digit && digit[1] <= this.views.length) this.#activate(digit[1] - 1);
    else if (key in ARROWS) this.#arrow(...ARROWS[key], event.shiftKey);
    else if (key in this.#actions) this.#actions[key]();
    else return false;
    return true;
  }

  #arrow(right, down, far) {
    if (this.#held.has("w")) this.active.adjust(right * GREY_STEP, -down * GREY_STEP);
    else if (this.drawing.active) this.drawing.move(right, down, far);
    else this.active.pan(-right * PAN_STEP, -down * PAN_STEP);
  }

  #listen(view, canvas, index) {
    const { drawing } = this;
    const pointers = new Map();
    let start = null;
    const wheel = (event) => {
      event.preventDefault();
      view.zoom(ZOOM_STEP ** (-event.deltaY / 100), view.position(event));
    };
    const down = (event) => {
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, event);
      canvas.focus({ preventScroll: true });
      start = event;
      if (drawing.active && event.button === 0) drawing.set(view.position(event));
    };
    const move = (event) => {
      const before = pointers.get(event.pointerId);
      if (!before) {
        if (drawing.active && view === this.active) drawing.place(view.position(event));
        return;
      }
      const [right, below] = [event.clientX - before.clientX, event.clientY - before.clientY];
      const other = [...pointers.values()].find(({ pointerId }) => pointerId !== event.pointerId);
      if (other) {
        const apart = (pointer) => Math.hypot(pointer.clientX - other.clientX, pointer.clientY - other.clientY);
        view.zoom(apart(event) / Math.max(apart(before), 1), view.position(other));
      } else if (start.button === 2 || this.#held.has("w")) view.adjust(right, -below);
      else if (drawing.active && start.button === 0) drawing.place(view.position(event));
      else view.pan(right, below);
      pointers.set(event.pointerId, event);
    };
    const up = (event) => {
      const known = pointers.delete(event.pointerId);
      const moved = start && Math.hypot(event.clientX - start.clientX, event.clientY - start.clientY) > CLICK;
      if (known && moved && drawing.begun && event.type === "pointerup") drawing.set(view.position(event));
    };
    canvas.addEventListener("focus", () => this.#active === index || this.#activate(index));
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
    canvas.addEventListener("dblclick", () => drawing.active || this.#enlarge(!this.#enlarged));
    canvas.addEventListener("wheel", wheel, { passive: false });
    canvas.addEventListener("pointerdown", down);
    canvas.addEventListener("pointermove", move);
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
  }

  /** Lay masks over the images, [{image, url, label}]: of a stage that shows them. */
  setMasks(masks) {
    this.#masks = masks.map((mask) => ({ ...mask }));
    for (const mask of this.#masks) {
      const shown = (bitmap) => Object.assign(mask, { bitmap });
      this.#store
        .load(mask.url)
        .then(shown, (error) => say(`A mask cannot be shown. ${error.message}`))
        .then(() => this.#overlay());
    }
    byId("tools").classList.toggle("masked", masks.length > 0);
    this.#overlay();
  }

  #overlay() {
    const masks = this.#masksShown ? this.#masks.filter(({ bitmap }) => bitmap) : [];
    for (const [n, view] of this.views.entries()) {
      view.overlays = masks
        .filter(({ image }) => image === n)
        .map(({ bitmap }) => ({ bitmap, opacity: this.#opacity }));
      view.draw();
    }
  }

  #toggleMasks() {
    this.#masksShown = !this.#masksShown;
    byId("tools").querySelector("[data-key=o]").setAttribute("aria-pressed", this.#masksShown);
    this.#overlay();
  }

  #setOpacity(opacity) {
    this.#opacity = Math.min(Math.max(opacity, OPACITY_STEP), 1);
    this.#overlay();
  }

  /** Hide the images (a break), and stop the loops. */
  hide(hidden) {
    if (hidden) this.#loops.stopAll();
    this.#grid.classList.toggle("away", hidden);
  }
}
