/** Cine loops: they play at their own speed, and wait for a frame that is not there yet. */

import { element, keyLabel, say } from "./dom.js";

const FRAME_MS = 50; // where a loop does not say how fast it is

export class Loops {
  #playing = new Map(); // view -> time of its last frame
  #controls = new Map(); // view -> function that shows its frame
  #ticking = false;

  /** Stop all; new images come. */
  clear() {
    this.#playing.clear();
    this.#controls.clear();
  }

  /** The button, the slider and the frame number of a loop. */
  controls(view) {
    const { frames } = view.image;
    const slider = element("input", {
      type: "range",
      min: 0,
      max: frames - 1,
      value: 0,
      "aria-label": "Frame of the loop",
    });
    const shown = element("output", {}, `1 / ${frames}`);
    const button = element("button", { type: "button", onclick: () => this.toggle(view) }, "Play ", keyLabel("Space"));
    slider.addEventListener("input", () => this.show(view, Number(slider.value)));
    this.#controls.set(view, () => {
      slider.value = view.frame;
      shown.textContent = `${view.frame + 1} / ${frames}`;
      button.firstChild.textContent = this.#playing.has(view) ? "Pause " : "Play ";
    });
    return element("div", { class: "loop" }, button, slider, shown);
  }

  /** Stop at a frame; the last one is followed by the first. */
  show(view, frame) {
    this.#playing.delete(view);
    this.#seek(view, (frame + view.image.frames) % view.image.frames);
  }

  stopAll() {
    this.#playing.clear();
    for (const update of this.#controls.values()) update();
  }

  /** Play or pause. */
  toggle(view) {
    if (view.image.frames < 2) return;
    if (!this.#playing.delete(view)) {
      this.#playing.set(view, performance.now());
      if (!this.#ticking) this.#tick();
    }
    this.#controls.get(view)();
  }

  async #seek(view, frame) {
    await view.seek(frame).catch((error) => say(`The frame cannot be shown. ${error.message}`));
    this.#controls.get(view)?.();
  }

  #tick() {
    this.#ticking = this.#playing.size > 0;
    if (this.#ticking) requestAnimationFrame((now) => this.#advance(now));
  }

  #advance(now) {
    for (const [view, last] of this.#playing) {
      const length = view.image.frame_ms || FRAME_MS;
      const due = Math.floor((now - last) / length);
      if (due < 1) continue;
      const far = (view.frame + due) % view.image.frames; // frames are left out where the screen is slower than the loop
      const frame = view.has(far) ? far : (view.frame + 1) % view.image.frames;
      this.#playing.set(view, view.has(frame) ? last + due * length : now);
      this.#seek(view, frame);
    }
    this.#tick();
  }
}
