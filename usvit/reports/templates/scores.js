// Tables that can be sorted, filtered and leafed through, a hundred rows at a time, 25 on a phone. Cells are set as text, never as HTML.
"use strict";
const PAGE = matchMedia("(max-width: 40rem)").matches ? 25 : 100;
const NUMERIC = new Set(["count", "number", "prob"]);
const read = (id) => JSON.parse(document.getElementById(id).textContent);
const make = (tag, className, text) => {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
};
const element = (tag, attributes, ...content) => {
  const made = make(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...content);
  return made;
};
const button = (text, attributes) => element("button", { type: "button", ...attributes }, text);
const grouped = (n) => n.toLocaleString("en");

class Sheet {
  constructor(section) {
    const name = section.dataset.table;
    this.section = section;
    this.rows = read(name + "-rows");
    this.pictures = document.getElementById(name + "-pictures") ? read(name + "-pictures") : {};
    const spec = read(name + "-spec");
    this.columns = spec.columns.map(([title, kind]) => ({ title, kind }));
    this.positive = spec.positive;
    this.threshold = spec.threshold;
    section.replaceChildren(...(spec.tools ? [this.tools()] : []), ...this.frame(spec));
    this.view = this.rows.map((_, row) => row);
    this.page = 0;
    this.table = section.querySelector("table.rows");
    this.heads = [...this.table.tHead.rows[0].cells];
    this.body = this.table.tBodies[0];
    this.at = (kind) => this.columns.findIndex((column) => column.kind === kind);
    for (const [k, head] of this.heads.entries())
      head.querySelector("button")?.addEventListener("click", () => this.sort(k));
    for (const control of section.querySelectorAll("[data-filter]"))
      control.addEventListener("input", () => this.filter());
    for (const button of section.querySelectorAll("[data-go]"))
      button.addEventListener("click", () => this.go(button.dataset.go, button));
    section.querySelector("[data-reset]")?.addEventListener("click", () => this.reset());
    section.querySelector("[data-save]")?.addEventListener("click", () => this.save());
    if (spec.sort >= 0) this.sort(spec.sort); else this.show();
  }

  // Which rows are shown.
  tools() {
    const filter = (name, attributes) => element("input", { "data-filter": name, ...attributes });
    const range = { type: "number", min: 0, max: 1, step: 0.01 };
    const tools = element("div", { class: "tools", role: "group", "aria-label": "Which rows are shown" });
    const words = { type: "search", placeholder: "an id or a flag", autocomplete: "off", spellcheck: "false" };
    tools.append(element("label", { class: "grow" }, "Find ", filter("words", words)));
    if (this.threshold !== null) {
      const choices = [["", "any"], ["=" + this.positive, this.positive], ["=not " + this.positive, "not " + this.positive], ["none", "no decision"]];
      const options = choices.map(([value, text]) => element("option", { value }, text));
      tools.append(element("label", {}, "Decision ", element("select", { "data-filter": "decision" }, ...options)));
    }
    tools.append(
      element("label", {}, "Calibrated from ", filter("low", { ...range, placeholder: 0 })),
      element("label", {}, "to ", filter("high", { ...range, placeholder: 1 })),
      element("label", { class: "check" }, filter("unusual", { type: "checkbox" }), " only unusual"),
      button("Show all", { "data-reset": "" }),
      button("Save these rows (CSV)", { "data-save": "" }),
    );
    return tools;
  }

  // The table without its rows, and what leafs through it.
  frame(spec) {
    const pager = (where) => element("div", { class: "pager " + where },
      button("First", { "data-go": "first" }), button("Previous", { "data-go": "back" }), make("span", "place"),
      button("Next", { "data-go": "on" }), button("Last", { "data-go": "last" }));
    const heads = this.columns.map(({ title, kind }) => {
      const content = kind === "picture" ? make("span", "hidden", title) : button("", {});
      if (kind !== "picture") content.append(element("span", { class: "arrow", "aria-hidden": "true" }), title);
      return element("th", { scope: "col", role: "columnheader", class: NUMERIC.has(kind) ? "n" : kind }, content);
    });
    const caption = element("span", {}, spec.caption + " ", make("span", "on-screen", "Click a heading to sort."), spec.rest);
    const table = element("table", { class: "rows", role: "table" },
      element("caption", {}, caption),
      element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...heads)),
      element("tbody", { role: "rowgroup" }));
    return [
      element("div", { class: "bar-of-tools" }, element("p", { class: "shown", role: "status" }), pager("before")),
      element("div", { class: "wide", role: "region", "aria-label": spec.caption, tabindex: 0 }, table),
      pager("after"),
    ];
  }

  // Up or down; what is missing stands last either way, and equals stay in the order of the table.
  sort(k) {
    const { kind } = this.columns[k];
    const now = this.heads[k].getAttribute("aria-sort");
    const down = now ? now === "ascending" : NUMERIC.has(kind) || kind === "flags";
    for (const head of this.heads) head.removeAttribute("aria-sort");
    this.heads[k].setAttribute("aria-sort", down ? "descending" : "ascending");
    this.order = { k, down };
    this.filter();
  }

  filter() {
    const wanted = {};
    for (const control of this.section.querySelectorAll("[data-filter]"))
      wanted[control.dataset.filter] = control.type === "checkbox" ? control.checked : control.value.trim();
    const words = (wanted.words || "").toLowerCase().split(/\s+/).filter(Boolean);
    const low = wanted.low ? Number(wanted.low) : null;
    const high = wanted.high ? Number(wanted.high) : null;
    const [prob, flags, decision] = ["prob", "flags", "decision"].map(this.at);
    const keep = (row) => {
      const cells = this.rows[row];
      if (wanted.unusual && cells[flags][0] !== "unusual") return false;
      if (wanted.decision && cells[decision] !== (wanted.decision === "none" ? "" : wanted.decision.slice(1))) return false;
      if (low !== null && !(cells[prob] !== null && cells[prob] >= low)) return false;
      if (high !== null && !(cells[prob] !== null && cells[prob] <= high)) return false;
      return words.every((word) => this.words(row).includes(word));
    };
    this.view = this.rows.map((_, row) => row).filter(keep);
    if (this.order) {
      const { k, down } = this.order;
      const key = (row) => (Array.isArray(this.rows[row][k]) ? this.rows[row][k].join(" ") : this.rows[row][k]);
      const keys = new Map(this.view.map((row) => [row, key(row)]));
      const absent = (value) => value === null || value === "";
      this.view.sort((one, other) => {
        const a = keys.get(one), b = keys.get(other);
        if (absent(a) || absent(b)) return absent(a) - absent(b);
        return (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1);
      });
    }
    this.page = 0;
    this.show();
  }

  // All that can be searched of a row, in small letters.
  words(row) {
    this.found ??= new Map();
    if (!this.found.has(row)) {
      const texts = this.rows[row].filter((_, k) => !NUMERIC.has(this.columns[k].kind) && this.columns[k].kind !== "picture");
      this.found.set(row, texts.flat().join("\n").toLowerCase());
    }
    return this.found.get(row);
  }

  reset() {
    for (const control of this.section.querySelectorAll("[data-filter]"))
      if (control.type === "checkbox") control.checked = false; else control.value = "";
    this.filter();
  }

  get pages() { return Math.max(1, Math.ceil(this.view.length / PAGE)); }

  go(where, button) {
    this.page = { first: 0, back: this.page - 1, on: this.page + 1, last: this.pages - 1 }[where];
    this.show();
    if (button.closest(".after")) this.table.scrollIntoView({ block: "start" });
  }

  show() {
    const first = this.page * PAGE;
    const shown = this.view.slice(first, first + PAGE);
    this.body.replaceChildren(...shown.map((row) => this.line(row)));
    const of = this.view.length === this.rows.length ? "" : ` (of ${grouped(this.rows.length)})`;
    const range = shown.length ? `${grouped(first + 1)}\u2013${grouped(first + shown.length)} of ` : "";
    this.section.querySelector("[role=status]").textContent =
      shown.length ? `${range}${grouped(this.view.length)} rows${of}` : `No row matches${of}.`;
    for (const place of this.section.querySelectorAll(".place"))
      place.textContent = `page ${grouped(this.page + 1)} of ${grouped(this.pages)}`;
    for (const pager of this.section.querySelectorAll(".pager")) pager.hidden = this.pages === 1;
    for (const button of this.section.querySelectorAll("[data-go]"))
      button.disabled = ["first", "back"].includes(button.dataset.go) ? this.page === 0 : this.page === this.pages - 1;
  }

  line(row) {
    const line = make("tr");
    line.setAttribute("role", "row");
    this.rows[row].forEach((value, k) => line.append(this.cell(value, this.columns[k], row, k)));
    return line;
  }

  cell(value, { kind, title }, row, k) {
    const cell = make(kind === "id" && k === this.at("id") ? "th" : "td", NUMERIC.has(kind) ? "n" : kind);
    if (cell.tagName === "TH") cell.scope = "row";
    // On a narrow screen rows are laid out as cards, which would hide from a screen reader that this is a table.
    cell.setAttribute("role", cell.tagName === "TH" ? "rowheader" : "cell");
    if (kind !== "picture") cell.dataset.title = title;
    cell.classList.toggle("empty", kind === "picture" ? !this.pictures[row] : value === null || value === "" || value.length === 0);
    if (kind === "picture") {
      if (this.pictures[row]) {
        const image = make("img");
        image.alt = "";
        image.src = "data:image/jpeg;base64," + this.pictures[row];
        cell.append(image);
      }
    } else if (kind === "prob") {
      cell.classList.add("prob");
      if (value !== null) {
        const bar = make("span", "bar");
        bar.style.setProperty("--share", value);
        if (this.threshold !== null) bar.style.setProperty("--threshold", this.threshold);
        bar.classList.toggle("above", this.threshold !== null && value >= this.threshold);
        cell.append(bar, value.toFixed(3));
      }
    } else if (kind === "flags") {
      for (const flag of value) cell.append(make("span", flag === "unusual" || flag === "seen" ? "flag strong" : "flag", flag), " ");
    } else if (kind === "decision") {
      cell.textContent = value || "no decision";
      cell.classList.toggle("positive", value === this.positive);
      cell.classList.toggle("none", !value);
    } else if (kind === "number") {
      cell.textContent = value === null ? "" : value.toFixed(3);
    } else if (kind === "count") {
      cell.textContent = value === null ? "" : grouped(value);
    } else if (kind === "id") {
      cell.append(make("code", "", value));
    } else {
      cell.textContent = value;
    }
    return cell;
  }

  // The rows that the filters leave, in their order; a spreadsheet must not take a cell for a formula.
  save() {
    const columns = this.columns.map((_, k) => k).filter((k) => this.columns[k].kind !== "picture");
    const quoted = (value) => {
      let text = value === null ? "" : Array.isArray(value) ? value.join(";") : String(value);
      if (typeof value === "string" && /^[=+\-@']/.test(text)) text = "'" + text;
      return /[",\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
    };
    const lines = this.view.map((row) => columns.map((k) => quoted(this.rows[row][k])).join(","));
    const text = [columns.map((k) => quoted(this.columns[k].title)).join(","), ...lines].join("\n") + "\n";
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = this.section.dataset.table + "-selected.csv";
    link.click();
    URL.revokeObjectURL(link.href);
  }
}

for (const place of document.querySelectorAll("[data-table]")) new Sheet(place);
