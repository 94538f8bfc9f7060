/** One image on its canvas. Positions are in pixels of the image; (0, 0) is the upper left corner of its first pixel. */

import { imageUrl } from "./store.js";

const INK = { measure: "#ffd84d", answer: "#5cd6ff", cross: "#ffffff" };
const FULL = { window: 256, level: 128 };
const CLOSEST = 40; // screen pixels of an image pixel
const NICE_MM = [50, 20, 10, 5, 2, 1, 0.5];
const RULE_WIDTH = 140; // CSS pixels that the scale bar may take

const within = (value, low, high) => Math.min(Math.max(value, low), high);

/** The length between two positions in words: mm where the spacing is known, else pixels. */
export function lengthText(image, a, b) {
  const pixels = Math.hypot(b.x - a.x, b.y - a.y);
  return image.spacing_mm ? `${(pixels * image.spacing_mm).toFixed(1)} mm` : `${Math.round(pixels)} px`;
}

export class View {
  frame = 0;
  cross = null; // the position of the crosshair while a tool is used
  overlays = []; // {bitmap, opacity}
  marks = []; // {kind: "line" | "point" | "box", ink, frame, text, ...positions}
  #pen;
  #fitted = true;
  #wanted = 0;
  #drawn = false;
  #asked = false;
  #adjusted = { key: "", canvas: document.createElement("canvas") };

  /** `image`: an image of the task; `store`: where its frames come from. */
  constructor(image, canvas, store) {
    Object.assign(this, { image, canvas, store });
    this.#pen = canvas.getContext("2d");
    this.reset();
  }

  get ratio() {
    return window.devicePixelRatio || 1;
  }

  /** Everything as at first: the whole image, its own grey values, not flipped. */
  reset() {
    Object.assign(this, FULL, { flipped: false });
    this.fit();
  }

  fit() {
    const { canvas, image } = this;
    this.#fitted = true;
    this.scale = Math.min(canvas.width / image.width, canvas.height / image.height) || 1;
    Object.assign(this, { x: image.width / 2, y: image.height / 2 }); // the position in the middle of the canvas
    this.draw();
  }

  /** One pixel of the image is one pixel of the screen. */
  exact() {
    this.zoom(1 / this.scale);
  }

  /** Zoom; the position `at` (by default, the middle) stays where it is. */
  zoom(factor, at = { x: this.x, y: this.y }) {
    const whole = Math.min(this.canvas.width / this.image.width, this.canvas.height / this.image.height, 1);
    const scale = within(this.scale * factor, whole / 4, CLOSEST);
    const share = this.scale / scale;
    this.#fitted = false;
    Object.assign(this, { scale, x: at.x + (this.x - at.x) * share, y: at.y + (this.y - at.y) * share });
    this.draw();
  }

  /** Move the image by CSS pixels of the screen. */
  pan(right, down) {
    const step = this.ratio / this.scale;
    this.#fitted = false;
    this.x = within(this.x - (this.flipped ? -right : right) * step, 0, this.image.width);
    this.y = within(this.y - down * step, 0, this.image.height);
    this.draw();
  }

  flip() {
    this.flipped = !this.flipped;
    this.x = this.image.width - this.x; // the same part of the screen shows the mirrored part of the image
    this.draw();
  }

  /** Change window and level by grey values. */
  adjust(window, level) {
    this.window = within(this.window + window, 1, 1024);
    this.level = within(this.level + level, 0, 255);
    this.draw();
  }

  /** The canvas has this size now, in CSS pixels. */
  resize(width, height) {
    const { canvas, ratio } = this;
    Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    if (this.#fitted) this.fit();
    else this.draw();
  }

  /** Show a frame as soon as it is there. Errors: those of the store. */
  async seek(frame) {
    this.#wanted = within(frame, 0, this.image.frames - 1);
    const wanted = this.#wanted;
    await this.store.load(imageUrl(this.image.id, wanted));
    if (wanted !== this.#wanted) return;
    this.frame = wanted;
    this.draw();
  }

  /** Whether a frame can be shown at once. */
  has(frame) {
    return this.store.get(imageUrl(this.image.id, frame)) !== undefined;
  }

  /** The position in the image below a pointer event. */
  position(event) {
    const { left, top } = this.canvas.getBoundingClientRect();
    const across = ((event.clientX - left) * this.ratio - this.canvas.width / 2) / this.scale;
    return this.inside({
      x: this.x + (this.flipped ? -across : across),
      y: this.y + ((event.clientY - top) * this.ratio - this.canvas.height / 2) / this.scale,
    });
  }

  /** The nearest position within the image, to a tenth of a pixel. */
  inside({ x, y }) {
    const round = (value, high) => Math.round(within(value, 0, high) * 10) / 10;
    return { x: round(x, this.image.width), y: round(y, this.image.height) };
  }

  #screen({ x, y }) {
    const across = (x - this.x) * this.scale;
    return [
      this.canvas.width / 2 + (this.flipped ? -across : across),
      this.canvas.height / 2 + (y - this.y) * this.scale,
    ];
  }

  /** Draw once all changes of this moment are made: a new case changes size, position, marks and masks at once. */
  draw() {
    if (this.#asked) return;
    this.#asked = true;
    queueMicrotask(() => {
      this.#asked = false;
      this.#paint();
    });
  }

  #paint() {
    const { canvas, image, scale } = this;
    const pen = this.#pen;
    const bitmap = this.store.get(imageUrl(image.id, this.frame));
    if (!bitmap && this.#drawn) this.seek(this.frame).catch(() => {}); // it was dropped, and comes again
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.fillStyle = "#000";
    pen.fillRect(0, 0, canvas.width, canvas.height);
    if (!bitmap || !canvas.width) return;
    this.#drawn = true;
    const [left, top] = this.#screen({ x: 0, y: 0 });
    pen.setTransform(this.flipped ? -scale : scale, 0, 0, scale, left, top);
    pen.imageSmoothingEnabled = scale !== 1;
    pen.imageSmoothingQuality = "high";
    pen.drawImage(this.#inWindow(bitmap), 0, 0, image.width, image.height);
    for (const { bitmap: mask, opacity } of this.overlays) {
      pen.globalAlpha = opacity;
      pen.drawImage(mask, 0, 0, image.width, image.height);
    }
    pen.globalAlpha = 1;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    const now = ({ frame }) => frame === undefined || frame === this.frame;
    for (const mark of this.marks.filter(now)) this.#mark(mark);
    if (this.cross) this.#crosshair();
    if (image.spacing_mm) this.#rule();
    this.#readout();
  }

  /** Zoom, and window and level where they were changed, at the lower right. */
  #readout() {
    const { window, level, scale, canvas, ratio } = this;
    const grey = window === FULL.window && level === FULL.level ? "" : `W ${window} L ${level}  `;
    this.#write(`${grey}${Math.round(scale * 100)} %`, canvas.width, canvas.height - 8 * ratio, "#ffffff");
  }

  /** The image through window and level: grey values of level -/+ window / 2 become black and white. */
  #inWindow(bitmap) {
    const { window, level, frame } = this;
    if (window === FULL.window && level === FULL.level) return bitmap;
    const { canvas, key } = this.#adjusted;
    const wanted = `${frame} ${window} ${level}`;
    if (key === wanted) return canvas;
    const low = level - window / 2;
    const table = Uint8ClampedArray.from({ length: 256 }, (_, value) => ((value - low) * 255) / window);
    Object.assign(canvas, { width: bitmap.width, height: bitmap.height });
    const pen = canvas.getContext("2d", { willReadFrequently: true });
    pen.drawImage(bitmap, 0, 0);
    const pixels = pen.getImageData(0, 0, bitmap.width, bitmap.height);
    const { data } = pixels;
    for (let n = 0; n < data.length; n += 4) {
      data[n] = table[data[n]];
      data[n + 1] = table[data[n + 1]];
      data[n + 2] = table[data[n + 2]];
    }
    pen.putImageData(pixels, 0, 0);
    this.#adjusted.key = wanted;
    return canvas;
  }

  /** Stroke a path twice, so that it is seen on black and on white. */
  #stroke(ink, dashes = []) {
    const pen = this.#pen;
    pen.setLineDash(dashes.map((dash) => dash * this.ratio));
    for (const [style, width] of [
      ["rgb(0 0 0 / .7)", 3.5],
      [ink, 1.5],
    ]) {
      Object.assign(pen, { strokeStyle: style, lineWidth: width * this.ratio });
      pen.stroke();
    }
    pen.setLineDash([]);
  }

  #write(text, x, y, ink) {
    const pen = this.#pen;
    pen.font = `${13 * this.ratio}px system-ui, sans-serif`;
    const edge = 4 * this.ratio;
    const left = within(x, edge, Math.max(edge, this.canvas.width - pen.measureText(text).width - edge));
    const base = within(y, 16 * this.ratio, this.canvas.height - edge);
    Object.assign(pen, {
      strokeStyle: "rgb(0 0 0 / .8)",
      lineWidth: 3 * this.ratio,
      lineJoin: "round",
      fillStyle: ink,
    });
    pen.strokeText(text, left, base);
    pen.fillText(text, left, base);
  }

  #mark(mark) {
    const pen = this.#pen;
    const arm = 6 * this.ratio;
    const ink = INK[mark.ink];
    const [x, y] = this.#screen(mark.kind === "line" ? mark.a : mark);
    pen.beginPath();
    if (mark.kind === "box") {
      const [right, bottom] = this.#screen({ x: mark.x + mark.width, y: mark.y + mark.height });
      pen.rect(x, y, right - x, bottom - y);
    } else {
      for (const [atX, atY] of mark.kind === "line" ? [[x, y], this.#screen(mark.b)] : [[x, y]]) {
        pen.moveTo(atX - arm, atY);
        pen.lineTo(atX + arm, atY);
        pen.moveTo(atX, atY - arm);
        pen.lineTo(atX, atY + arm);
      }
      if (mark.kind === "line") {
        pen.moveTo(x, y);
        pen.lineTo(...this.#screen(mark.b));
      }
    }
    this.#stroke(ink);
    const [textX, textY] = mark.kind === "line" ? this.#screen(mark.b) : [x, y];
    if (mark.text) this.#write(mark.text, textX + arm, textY - arm, ink);
  }

  #crosshair() {
    const [x, y] = this.#screen(this.cross);
    const pen = this.#pen;
    pen.beginPath();
    pen.moveTo(0, y);
    pen.lineTo(this.canvas.width, y);
    pen.moveTo(x, 0);
    pen.lineTo(x, this.canvas.height);
    this.#stroke(INK.cross, [3, 3]);
  }

  /** The scale bar: a round number of millimetres at the lower left. */
  #rule() {
    const { image, ratio, canvas } = this;
    const pixels = (mm) => (mm / image.spacing_mm) * this.scale;
    const length = NICE_MM.find((mm) => pixels(mm) <= Math.min(RULE_WIDTH * ratio, canvas.width / 3));
    if (!length) return;
    const [left, bottom, tick] = [12 * ratio, canvas.height - 12 * ratio, 5 * ratio];
    const pen = this.#pen;
    pen.beginPath();
    pen.moveTo(left, bottom - tick);
    pen.lineTo(left, bottom);
    pen.lineTo(left + pixels(length), bottom);
    pen.lineTo(left + pixels(length), bottom - tick);
    this.#stroke("#ffffff");
    this.#write(`${length} mm`, left, bottom - 8 * ratio, "#ffffff");
  }
}
