/** The page of the host: who reads, how far each reader is, and how the answers are exported. */

import { getState } from "./api.js";
import { byId, element, say, showSection, warn } from "./dom.js";

const REFRESH_MS = 5000;

const dateText = (time) => new Date(time).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });

async function copy(text, field) {
  try {
    await navigator.clipboard.writeText(text);
    say("Copied.");
  } catch {
    getSelection().selectAllChildren(field);
    say("Selected: copy it with the keys of your system.");
  }
}

function stateText(reader) {
  if (reader.finished) return "finished";
  if (reader.opens_at) return `waits until ${dateText(reader.opens_at)}`;
  return reader.done ? "reads" : "not begun";
}

/** A row of the table, and a function that brings it up to date. */
function readerRow(reader) {
  const link = element("code", {}, reader.link);
  const button = element("button", { type: "button", "aria-label": `Copy the link of ${reader.name}` }, "Copy");
  button.addEventListener("click", () => copy(link.textContent, link));
  const bar = element("progress", { "aria-label": `Progress of ${reader.name}` });
  const count = element("span");
  const cells = { session: element("td", { class: "n" }), time: element("td", { class: "n" }), state: element("td") };
  const row = element(
    "tr",
    {},
    element("th", { scope: "row" }, reader.name),
    element("td", {}, element("div", { class: "link" }, link, button)),
    element("td", {}, element("div", { class: "done" }, bar, count)),
    ...Object.values(cells),
  );
  const update = ({ done, total, session, sessions, mean_seconds: seconds, ...rest }) => {
    Object.assign(bar, { max: Math.max(total, 1), value: done });
    count.textContent = `${done} of ${total}`;
    cells.session.textContent = `${session} of ${sessions}`;
    cells.time.textContent = seconds === null ? "–" : `${seconds.toFixed(1)} s`;
    cells.state.textContent = stateText({ done, ...rest });
  };
  update(reader);
  return { row, update };
}

export function showOverview(state) {
  document.title = state.study.title;
  byId("title").textContent = state.study.title;
  byId("export").textContent = state.export;
  byId("copy-export").addEventListener("click", () => copy(byId("export").textContent, byId("export")));
  const rows = new Map();
  const update = ({ readers }) => {
    for (const reader of readers) {
      if (rows.has(reader.name)) rows.get(reader.name).update(reader);
      else {
        rows.set(reader.name, readerRow(reader));
        byId("readers").append(rows.get(reader.name).row);
      }
    }
  };
  update(state);
  showSection("overview");
  let asking = false;
  setInterval(async () => {
    if (document.hidden || asking) return;
    asking = true;
    try {
      update(await getState());
    } catch (error) {
      warn(error.message);
    }
    asking = false;
  }, REFRESH_MS);
}
