// Marks on pairs: kept in this browser, exported as CSV. The page says all it has to say without them.
"use strict";
const pairs = [...document.querySelectorAll("article.duo")];
const store = "usvit-audit-" + document.body.dataset.manifest;
const key = (pair) => JSON.stringify([pair.dataset.dataset1, pair.dataset.image1, pair.dataset.dataset2, pair.dataset.image2]);
let marks = {};
try { marks = JSON.parse(localStorage.getItem(store)) || {}; } catch { /* a browser may refuse to remember */ }

function show() {
  for (const pair of pairs)
    for (const button of pair.querySelectorAll("button"))
      button.setAttribute("aria-pressed", String(marks[key(pair)] === button.value));
  const n = pairs.filter((pair) => marks[key(pair)]).length;
  document.getElementById("judged").textContent = n + " of " + pairs.length + " pairs judged";
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

function reverse() {
  for (const list of document.querySelectorAll(".duos")) list.append(...[...list.children].reverse());
}

for (const pair of pairs)
  for (const button of pair.querySelectorAll("button"))
    button.addEventListener("click", () => mark(pair, button.value));
document.getElementById("reverse").addEventListener("click", reverse);
document.getElementById("export").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
  link.download = "judgements.csv";
  link.click();
  URL.revokeObjectURL(link.href);
});
if (pairs.length) for (const control of document.querySelectorAll("[hidden].with-script")) control.hidden = false;
show();
