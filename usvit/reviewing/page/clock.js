/** The time that a reader spends on a case. */

const IDLE_MS = 120_000;
const TICK_MS = 500;

/** Counts while the page is visible, the window has the focus, nothing blocks it, and input came within two minutes. */
export class Clock {
  seconds = 0;
  #blocks = new Set(["no case"]);
  #last = performance.now();
  #input = performance.now();
  #stopped;
  #wasIdle = false;
  #counting = false;

  /** `stopped(idle)` is told when the clock stops for want of input, and when it goes on. */
  constructor(stopped) {
    this.#stopped = stopped;
    for (const kind of ["keydown", "pointerdown", "pointermove", "wheel"]) {
      document.addEventListener(kind, () => this.#touch(), { capture: true, passive: true });
    }
    for (const kind of ["visibilitychange", "focus", "blur"]) window.addEventListener(kind, () => this.tick(), true);
    setInterval(() => this.tick(), TICK_MS);
  }

  /** Begin a case whose first `seconds` were counted before. */
  start(seconds) {
    this.tick();
    this.seconds = seconds;
  }

  /** Stop for a reason, or go on once no reason is left. */
  block(reason, blocked) {
    this.tick();
    if (blocked) this.#blocks.add(reason);
    else this.#blocks.delete(reason);
  }

  /** Count up to now. The state of the tick before decides, so that no time away is counted. */
  tick() {
    const now = performance.now();
    const idle = now - this.#input > IDLE_MS;
    if (this.#counting) this.seconds += Math.max(0, Math.min(now, this.#input + IDLE_MS) - this.#last) / 1000;
    this.#counting = this.#blocks.size === 0 && !document.hidden && document.hasFocus();
    this.#last = now;
    if (idle !== this.#wasIdle) this.#stopped((this.#wasIdle = idle));
  }

  #touch() {
    this.tick();
    this.#input = performance.now();
    this.tick();
  }
}
