/** Decoded images, fetched ahead in the order in which they will be wanted. */

import { refusal } from "./api.js";

const LIMIT_BYTES = 300e6;
const AT_ONCE = 3;
const RETRY_MS = 1000;

export const imageUrl = (id, frame) => `/image/${encodeURIComponent(id)}/${frame}.png`;

/** The addresses of images in the order of their use: the first frames of the case, its loops, then what follows. */
export function inOrderOfUse(images, upcoming) {
  const frames = (image, first) =>
    Array.from({ length: image.frames - first }, (_, n) => imageUrl(image.id, first + n));
  return [
    ...images.map((image) => imageUrl(image.id, 0)),
    ...images.flatMap((image) => frames(image, 1)),
    ...upcoming.flatMap((image) => frames(image, 0)),
  ];
}

const size = (bitmap) => 4 * bitmap.width * bitmap.height;

/** Keeps at most about 300 MB of decoded images; what is wanted last and used longest ago goes first. */
export class ImageStore {
  #bitmaps = new Map(); // address -> ImageBitmap, used longest ago first
  #loading = new Map(); // address -> promise
  #wanted = [];
  #bytes = 0;
  #largest = 0;

  /** The decoded image, or undefined. */
  get(url) {
    const bitmap = this.#bitmaps.get(url);
    if (bitmap) (this.#bitmaps.delete(url), this.#bitmaps.set(url, bitmap));
    return bitmap;
  }

  /** Fetch and decode an image now. Errors: the server refuses it, or it is no image. */
  load(url) {
    const bitmap = this.get(url);
    if (bitmap) return Promise.resolve(bitmap);
    if (!this.#loading.has(url)) {
      this.#loading.set(
        url,
        this.#fetch(url).finally(() => this.#loading.delete(url)),
      );
    }
    return this.#loading.get(url);
  }

  /** Fetch these ahead, in this order, as far as there is room. What is not among them may be dropped. */
  want(urls) {
    this.#wanted = urls;
    for (let n = this.#loading.size; n < AT_ONCE; n++) this.#fetchAhead();
  }

  async #fetchAhead() {
    for (let url; (url = this.#next());) {
      try {
        await this.load(url);
      } catch {
        return; // the view that needs the image asks again, and says so
      }
    }
  }

  #next() {
    const here = this.#wanted.filter((url) => this.#bitmaps.has(url));
    const bytes = here.reduce((sum, url) => sum + size(this.#bitmaps.get(url)), 0);
    if (bytes + AT_ONCE * this.#largest > LIMIT_BYTES) return undefined;
    return this.#wanted.find((url) => !this.#bitmaps.has(url) && !this.#loading.has(url));
  }

  async #fetch(url) {
    let response;
    for (;;) {
      response = await fetch(url, { credentials: "same-origin" }).catch(() => null);
      if (response?.ok) break;
      if (response && response.status < 500) throw await refusal(response);
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
    const bitmap = await createImageBitmap(await response.blob(), { colorSpaceConversion: "none" });
    this.#bitmaps.set(url, bitmap);
    this.#bytes += size(bitmap);
    this.#largest = Math.max(this.#largest, size(bitmap));
    this.#drop(url);
    return bitmap;
  }

  /** Make room for the newest image: what nobody wants goes first, then what is wanted last. */
  #drop(newest) {
    if (this.#bytes <= LIMIT_BYTES) return;
    const rank = new Map(this.#wanted.map((url, n) => [url, n]));
    const spare = [...this.#bitmaps.keys()].filter((url) => url !== newest);
    spare.sort((a, b) => (rank.get(b) ?? Infinity) - (rank.get(a) ?? Infinity) || 0);
    for (const url of spare) {
      if (this.#bytes <= LIMIT_BYTES) return;
      const bitmap = this.#bitmaps.get(url);
      this.#bytes -= size(bitmap);
      this.#bitmaps.delete(url);
      bitmap.close();
    }
  }
}
