/** The page of usvit app: one section a step; all it shows is the state of the server. */

import { getState, post, refusal } from "./api.js";
import { byId, element, say, warn } from "./dom.js";
import "./theme.js";

const SOON_MS = 700;
const LATER_MS = 4000;
const NAMES = { score: "Scoring", rescore: "Scoring again", test: "Testing", recalibrate: "Recalibrating", answers: "Writing the answers" };
const ENDS = { finished: "is finished", failed: "failed", stopped: "was stopped; start it again to go on" };
let state = {};
let shownCases = "";

const every = (selector, act) => document.querySelectorAll(selector).forEach(act);
const link = (address, text) => element("a", { href: address, target: "_blank", rel: "noopener" }, text);
const list = (...lines) => element("ul", {}, ...lines.filter(Boolean).map((line) => element("li", {}, line)));

async function act(action, body = {}) {
  warn("");
  try {
    show(await post(`/api/${action}`, body, { once: true }));
    return true;
  } catch (error) {
    warn(error.message);
    return false;
  }
}

async function pick(purpose, path = "") {
  let found;
  try {
    found = await post("/api/folders", { path }, { once: true });
  } catch (error) {
    return warn(error.message);
  }
  const go = (to, text) => element("button", { type: "button", onclick: () => pick(purpose, to) }, text);
  byId("picker-path").textContent = found.path;
  byId("picker-places").replaceChildren(...(found.parent ? [go(found.parent, "One folder up")] : []), ...found.places.map((one) => go(one, one)));
  byId("picker-list").replaceChildren(...found.folders.map((one) => element("li", {}, go(one.path, one.name))));
  byId("picker-use").onclick = async () => {
    byId("picker").close();
    say("Looking into the folder.");
    await act(purpose, { path: found.path });
    say("");
  };
  if (!byId("picker").open) byId("picker").showModal();
}

function summary(one) {
  if (!one) return [];
  return [list(
    `${one.images} images of ${one.files} files scored: ${one.positive} ${one.positive_class}, ${one.negative} not ${one.positive_class}, ${one.undecided} without a decision`,
    one.failed && `${one.failed} not scored; the page of the scores gives the reasons`,
    one.unusual && `${one.unusual} unlike the images of the training`,
    one.seen && `${one.seen} were used in training: they are no test of the model`,
  ), link(`/results/${one.name}.html`, "Open the page of the scores")];
}

/** Replace the content of an element only if it differs, so that the focus of the keyboard stays where it is. */
function fill(id, ...parts) {
  const box = byId(id), fresh = element("div", {}, ...parts);
  if (fresh.innerHTML !== box.innerHTML) box.replaceChildren(...fresh.childNodes);
}

function show(fresh) {
  state = fresh;
  const { images, model, models, job, reading, results, labels, commands } = state;
  const busy = job.state === "running";
  fill("found", ...(images ? [element("p", {}, `${images.path}: ${images.n_files}${images.more ? " or more" : ""} files (${images.kinds.map((kind) => `${kind.n} ${kind.ending}`).join(", ")})`)] : []));
  fill("models", ...(models.length ? models.map((one) => element("label", {}, element("input", { type: "radio", name: "model", value: one.path, onchange: () => act("model", { path: one.path }) }), `${one.name} (${one.data}, ${one.n_images} images; ${one.classes.join(", ")}), ${one.path}`)) : [element("p", {}, "No model was found yet. A model is the folder of a finished training.")]));
  every("[name=model]", (choice) => { choice.checked = choice.value === model?.path; });
  if (document.activeElement !== byId("out")) byId("out").value = state.out ?? "";
  fill("scores", ...summary(results.scores));
  byId("job").hidden = job.state === "idle";
  byId("job-name").textContent = job.state === "idle" ? "" : `${NAMES[job.step]} ${busy ? "is running" : ENDS[job.state]}`;
  const bar = byId("job-bar");
  bar.hidden = !busy;
  if (job.progress) Object.assign(bar, { max: Math.max(1, job.progress.total), value: job.progress.done });
  else bar.removeAttribute("value");
  byId("job-text").textContent = job.error || (job.progress ? `${job.progress.done} of ${job.progress.total} ${job.progress.unit}` : "");
  fill("job-notes", ...(job.notes ?? []).map((note) => element("li", {}, note)));
  const reads = reading.state === "running";
  fill("reader", ...[
    reads && (reading.link ? element("p", {}, link(reading.link, "Open the reading page")) : element("p", {}, "The cases are being opened.")),
    reading.state === "failed" && element("p", {}, reading.error),
    results.answers && element("p", {}, `${results.answers.done} of ${results.answers.total} cases read`),
  ].filter(Boolean));
  byId("labels").textContent = labels ? `Table: ${labels.name}` : "";
  every("[data-label]", (field) => {
    field.disabled = !labels;
    if (document.activeElement === field || !labels) return;
    if (field.type === "checkbox") field.checked = labels.drop_seen;
    else field.value = labels[field.dataset.label];
  });
  fill("tests", ...(results.tests ?? []).map((one) => element("div", {}, element("h3", {}, one.name), list(...one.figures.map(([name, text]) => `${name}: ${text}`), ...one.warnings), link(`/results/${one.name}.html`, "Open the report"))));
  fill("fit", ...(results.calibration ? [list(`${results.calibration.name}, from ${results.calibration.images} images`, ...results.calibration.said)] : []), ...summary(results.rescored));
  fill("exports", ...[
    ...[results.scores, results.rescored].filter(Boolean).map((one) => `${one.name}.xlsx`),
    ...(results.tests ?? []).map((one) => `${one.name}.xlsx`),
    results.answers?.exported && "answers.xlsx",
  ].filter(Boolean).map((name) => element("li", {}, element("a", { href: `/results/${name}`, download: name }, name))));
  every("[data-command]", (field) => { field.textContent = commands[field.dataset.command] ?? ""; });
  every("[data-start]", (button) => { button.disabled = busy || !commands[button.dataset.start] || (button.dataset.start === "answers" && !results.answers); });
  document.querySelector('[data-act="stop"]').hidden = !busy;
  document.querySelector('[data-act="read"]').disabled = reads || !results.scores;
  document.querySelector('[data-act="stop-reading"]').hidden = !reads;
  if (results.problems?.length) warn(results.problems.join(" "));
  showCases();
}

async function showCases() {
  const { scores, tests } = state.results;
  const wanted = `${state.out} ${JSON.stringify(scores ?? null)} ${tests?.length}`;
  byId("cases").hidden = !scores;
  if (!scores || wanted === shownCases) return;
  shownCases = wanted;
  const response = await fetch("/api/cases");
  if (!response.ok) return warn((await refusal(response)).message);
  const { header, rows, n } = await response.json();
  const text = (value) => (typeof value === "number" && !Number.isInteger(value) ? value.toFixed(3) : String(value));
  document.querySelector("#cases table").replaceChildren(
    element("caption", {}, `${rows.length} of ${n} images; the studies with the highest probability come first.`),
    element("thead", {}, element("tr", {}, ...header.map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((value) => element("td", {}, text(value)))))),
  );
}

every("[data-pick]", (button) => button.addEventListener("click", () => pick(button.dataset.pick)));
every("[data-start]", (button) => button.addEventListener("click", () => act("start", { step: button.dataset.start })));
every("[data-act]", (button) => button.addEventListener("click", async () => {
  const ended = (await act(button.dataset.act)) && button.dataset.act === "close";
  if (ended) document.querySelector("main").replaceChildren(element("p", {}, "usvit has ended. You can close this page."));
}));
byId("out").addEventListener("change", () => act("results", { path: byId("out").value }));
every("[data-label]", (field) => field.addEventListener("change", () => {
  const value = (name) => document.querySelector(`[data-label="${name}"]`);
  act("labels", { label: value("label").value, image: value("image").value, words: value("words").value, drop_seen: value("drop_seen").checked });
}));
byId("file").addEventListener("change", async () => {
  const [file] = byId("file").files;
  if (!file) return;
  warn("");
  const headers = { "Content-Type": "application/octet-stream", "X-Usvit-Review": "1" };
  const response = await fetch(`/api/upload?name=${encodeURIComponent(file.name)}`, { method: "POST", headers, body: file });
  if (response.ok) show(await response.json());
  else warn((await refusal(response)).message);
  byId("file").value = "";
});

show(await getState());
for (;;) {
  const running = state.job.state === "running" || (state.reading.state === "running" && !state.reading.link);
  await new Promise((resolve) => setTimeout(resolve, running ? SOON_MS : LATER_MS));
  if (!document.querySelector("#found")) break;
  if (!document.hidden) show(await getState());
}
