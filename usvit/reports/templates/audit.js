// Marks on pairs: kept in this browser, exported as CSV. The page says all it has to say without them.
"use strict";
const pairs = [...document.querySelectorAll("li[data-manifest]")];
const store = "usvit-audit-" + (pairs.length ? pairs[0].dataset.manifest : "");
const key = (pair) => JSON.stringify([pair.dataset.dataset1, pair.dataset.image1, pair.dataset.dataset2, pair.dataset.image2]);
let marks = {};
try { marks = JSON.parse(localStorage.getItem(store)) || {}; } catch { /* a browser may refuse to remember */ }

function button(text, action) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = made.value = text;
  made.addEventListener("click", action);
  return made;
}

function show() {
  for (const pair of pairs)
    for (const one of pair.querySelectorAll("button"))
      one.setAttribute("aria-pressed", String(marks[key(pair)] === one.value));
  const n = pairs.filter((pair) => marks[key(pair)]).length;
  judged.textContent = n + " of " + pairs.length + " pairs judged";
}

function mark(pair, value) {
  if (marks[key(pair)] === value) delete marks[key(pair)]; else marks[key(pair)] = value;
  try { localStorage.setItem(store, JSON.stringify(marks)); } catch { /* they last as long as the page */ }
  show();
}

function csv() {
  const quoted = (text) => '"' + String(text).replaceAll('"', '""') + '"';
  const rows = pairs.filter((pair) => marks[key(pair)]).map((pair) => {
    const d = pair.dataset;
    return [d.dataset1, d.image1, d.dataset2, d.image2, d.similarity, d.kind, marks[key(pair)]].map(quoted).join(",");
  });
  return ["dataset_1,image_id_1,dataset_2,image_id_2,similarity,kind,judgement", ...rows].join("\n") + "\n";
}

function save() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
  link.download = "judgements.csv";
  link.click();
  URL.revokeObjectURL(link.href);
}

function reverse() {
  for (const list of new Set(pairs.map((pair) => pair.parentElement))) list.append(...[...list.children].reverse());
}

const judged = document.createElement("span");
judged.id = "judged";
if (pairs.length) {
  const tools = document.createElement("div");
  tools.className = "tools";
  tools.append(judged, button("Save judgements (CSV)", save), button("Reverse the order of pairs", reverse));
  pairs[0].closest("section").before(tools);
  for (const pair of pairs)
    pair.querySelector("p").append(" ", ...["same", "different"].map((value) => button(value, () => mark(pair, value))));
  show();
}
