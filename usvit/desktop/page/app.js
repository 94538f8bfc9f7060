/** The page of usvit app: one section a step; all it shows is the state of the server (usvit/desktop/records.py). */

import { getState, post, request, upload } from "./api.js";
import { byId, element, say, warn } from "./dom.js";
import "./theme.js";

const SOON_MS = 700;
const LATER_MS = 4000;
const NAMES = {
  score: "Scoring",
  rescore: "Scoring again",
  test: "Testing",
  recalibrate: "Recalibrating",
  answers: "Writing the answers",
};
const ENDS = { finished: "is finished", failed: "failed", stopped: "was stopped; start it again to go on" };
let state = {};
let shownCases = "";
const filled = new Map(); // id of an element -> what it was filled with

const one = (selector) => document.querySelector(selector);
const every = (selector, act) => document.querySelectorAll(selector).forEach(act);
const link = (address, text) => element("a", { href: address, target: "_blank", rel: "noopener" }, text);
const paragraph = (text) => element("p", {}, text);
const list = (...lines) => element("ul", {}, ...lines.filter(Boolean).map((line) => element("li", {}, line)));

/** Return what a request answers, or tell why it is refused and return null. */
async function asked(answer) {
  warn("");
  try {
    return await answer;
  } catch (error) {
    warn(error.message);
    return null;
  }
}

async function act(action, body = {}) {
  const fresh = await asked(post(`/api/${action}`, body, { once: true }));
  if (fresh) show(fresh);
  return fresh !== null;
}

async function pick(purpose, path = "") {
  byId("picker-use").disabled = true; // until the folder is shown
  const found = await asked(post("/api/folders", { path })); // it only reads, and may be asked again
  byId("picker-use").disabled = false;
  if (!found) return;
  const go = (to, text) => element("button", { type: "button", onclick: () => pick(purpose, to) }, text);
  const up = found.parent ? [go(found.parent, "One folder up")] : [];
  byId("picker-path").textContent = found.path;
  byId("picker-places").replaceChildren(...up, ...found.places.map((place) => go(place, place)));
  byId("picker-list").replaceChildren(...found.folders.map(({ path, name }) => element("li", {}, go(path, name))));
  byId("picker-use").onclick = async () => {
    byId("picker").close();
    say("Looking into the folder.");
    await act(purpose, { path: found.path });
    say("");
  };
  if (!byId("picker").open) byId("picker").showModal();
  (one("#picker-list button") ?? byId("picker-use")).focus();
}

/** Replace the content of an element only if it differs, so that the focus and what was unfolded stay as they are. */
function fill(id, ...parts) {
  const fresh = element("div", {}, ...parts.filter(Boolean));
  if (filled.get(id) === fresh.innerHTML) return;
  filled.set(id, fresh.innerHTML);
  byId(id).replaceChildren(...fresh.childNodes);
}

// What there is

function imagesLine({ path, n_files: n, more, kinds }) {
  const endings = kinds.map((kind) => `${kind.n} ${kind.ending}`).join(", ");
  return paragraph(`${path}: ${n}${more ? " or more" : ""} files (${endings})`);
}

function modelChoice({ path, name, data, n_images: n, classes }) {
  const choose = () => act("model", { path });
  const choice = element("input", { type: "radio", name: "model", value: path, onchange: choose });
  return element("label", {}, choice, `${name} (${data}, ${n} images; ${classes.join(", ")}), ${path}`);
}

function scoresSummary(scores, calibrated) {
  if (!scores) return [];
  const { positive_class: name, positive, negative, undecided } = scores;
  const verdicts = `${positive} ${name}, ${negative} not ${name}, ${undecided} without a decision`;
  const seen = calibrated ? "were used in training, or are of patients of the fit" : "were used in training";
  const lines = [
    `${scores.images} images of ${scores.files} files scored: ${verdicts}`,
    scores.failed && `${scores.failed} not scored; the page of the scores gives the reasons`,
    scores.unusual && `${scores.unusual} unlike the images of the training`,
    scores.seen && `${scores.seen} ${seen}: they are no test of the model`,
  ];
  return [list(...lines), link(`/results/${scores.name}.html`, "Open the page of the scores")];
}

/** The last test, and each earlier one folded. */
function testSummary({ name, figures, warnings }, number) {
  const lines = [...figures.map((figure) => `${figure.name}: ${figure.text}`), ...warnings];
  const parts = [list(...lines), link(`/results/${name}.html`, "Open the report")];
  if (number === 0) return element("div", {}, element("h3", {}, name), ...parts);
  return element("details", {}, element("summary", {}, `${name}, ${lines[0]}`), ...parts);
}

function readerParts({ state, link: address, error }, answers) {
  const opened = address ? element("p", {}, link(address, "Open the reading page")) : "The cases are being opened.";
  return [
    state === "running" && opened,
    state === "failed" && paragraph(error),
    answers && paragraph(`${answers.done} of ${answers.total} cases read`),
  ];
}

function exportItems({ scores, rescored, tests, answers }) {
  const names = [scores, rescored, ...tests].filter(Boolean).map(({ name }) => `${name}.xlsx`);
  if (answers?.exported) names.push("answers.xlsx");
  return names.map((name) => element("li", {}, element("a", { href: `/results/${name}`, download: name }, name)));
}

function showJob(job, busy) {
  const name = job.step ? `${NAMES[job.step]} ${busy ? "is running" : ENDS[job.state]}` : "";
  if (byId("job-name").textContent !== name) say(`${name}.`);
  byId("job").hidden = !name;
  byId("job").classList.toggle("runs", busy);
  byId("job-name").textContent = name;
  const bar = byId("job-bar");
  bar.hidden = !busy;
  if (job.progress) Object.assign(bar, { max: Math.max(1, job.progress.total), value: job.progress.done });
  else bar.removeAttribute("value");
  const progress = job.progress && `${job.progress.done} of ${job.progress.total} ${job.progress.unit}`;
  byId("job-text").textContent = job.error || progress || "";
  fill("job-notes", ...job.notes.map((note) => element("li", {}, note)));
}

function showLabels(labels) {
  byId("labels").textContent = labels ? `Table: ${labels.name}` : "";
  every("[data-label]", (field) => {
    field.disabled = !labels;
    if (document.activeElement === field || !labels) return;
    if (field.type === "checkbox") field.checked = labels.drop_seen;
    else field.value = labels[field.dataset.label];
  });
}

function showButtons({ job, reading, results, commands }, busy) {
  const before = document.activeElement;
  const reads = reading.state === "running";
  every("[data-command]", (field) => (field.textContent = commands[field.dataset.command] ?? ""));
  every("[data-start]", (button) => {
    const { start } = button.dataset;
    button.disabled = busy || !commands[start] || (start === "answers" && !results.answers);
  });
  one('[data-act="stop"]').hidden = !busy;
  one('[data-act="read"]').disabled = reads || !results.scores;
  one('[data-act="stop-reading"]').hidden = !reads;
  // A button that cannot be pressed any more gives the keyboard to the one that takes its place.
  if (!before.matches("button") || !(before.disabled || before.hidden)) return;
  const reader = { read: '[data-act="stop-reading"]', "stop-reading": '[data-act="read"]' };
  const next = { ...reader, stop: `[data-start="${job.step}"]` };
  one(next[before.dataset.act] ?? '[data-act="stop"]').focus({ preventScroll: true });
}

function show(fresh) {
  state = fresh;
  const { images, model, models, job, reading, results } = state;
  const busy = job.state === "running";
  const none = paragraph("No model was found yet. A model is the folder of a finished training.");
  fill("found", images && imagesLine(images));
  fill("models", ...(models.length ? models.map(modelChoice) : [none]));
  every("[name=model]", (choice) => (choice.checked = choice.value === model?.path));
  if (document.activeElement !== byId("out")) byId("out").value = state.out ?? "";
  fill("scores", ...scoresSummary(results.scores, false));
  showJob(job, busy);
  fill("reader", ...readerParts(reading, results.answers));
  showLabels(state.labels);
  fill("tests", ...results.tests.map(testSummary));
  const fit = results.calibration;
  const fitted = fit && list(`${fit.name}, from ${fit.images} images`, ...fit.said);
  fill("fit", fitted, ...scoresSummary(results.rescored, true));
  fill("exports", ...exportItems(results));
  showButtons(state, busy);
  if (results.problems.length) warn(results.problems.join(" "));
  showCases();
}

async function showCases() {
  const { scores, tests } = state.results;
  const wanted = `${state.out} ${JSON.stringify(scores ?? null)} ${tests.length}`;
  byId("cases").hidden = !scores;
  if (!scores || wanted === shownCases) return;
  shownCases = wanted;
  const found = await asked(request("/api/cases", {}, true));
  if (!found) return;
  const { header, rows, n } = found;
  const text = (value) => (typeof value === "number" && !Number.isInteger(value) ? value.toFixed(3) : String(value));
  const cells = (row) => row.map((value) => element("td", {}, text(value)));
  const heads = header.map((name) => element("th", { scope: "col" }, name));
  one("#cases table").replaceChildren(
    element("caption", {}, `${rows.length} of ${n} images; the studies with the highest probability come first.`),
    element("thead", {}, element("tr", {}, ...heads)),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...cells(row)))),
  );
}

// What the user does

every("[data-pick]", (button) => button.addEventListener("click", () => pick(button.dataset.pick)));
every("[data-start]", (button) =>
  button.addEventListener("click", () => act("start", { step: button.dataset.start })),
);
every("[data-act]", (button) =>
  button.addEventListener("click", async () => {
    const ended = (await act(button.dataset.act)) && button.dataset.act === "close";
    if (ended) one("main").replaceChildren(paragraph("usvit has ended. You can close this page."));
  }),
);
byId("out").addEventListener("change", () => act("results", { path: byId("out").value }));
every("[data-label]", (field) =>
  field.addEventListener("change", () => {
    const fields = [...document.querySelectorAll("[data-label]")];
    const value = (input) => (input.type === "checkbox" ? input.checked : input.value);
    act("labels", Object.fromEntries(fields.map((input) => [input.dataset.label, value(input)])));
  }),
);
byId("file").addEventListener("change", async () => {
  const [file] = byId("file").files;
  const fresh = file && (await asked(upload(`/api/upload?name=${encodeURIComponent(file.name)}`, file)));
  if (fresh) show(fresh);
  byId("file").value = "";
});

show(await getState());
for (;;) {
  const running = state.job.state === "running" || (state.reading.state === "running" && !state.reading.link);
  await new Promise((resolve) => setTimeout(resolve, running ? SOON_MS : LATER_MS));
  if (!one("#found")) break;
  if (!document.hidden) show(await getState());
}
