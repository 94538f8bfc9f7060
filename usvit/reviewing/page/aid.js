/** What the model says about a case; built only where the stage sends it. */

import { byId, element } from "./dom.js";

const inWords = (value) => value.toFixed(2);

/** Show the aid of a task, or nothing where it is null. */
export function showAid(aid) {
  byId("aid").hidden = !aid;
  if (!aid) return byId("aid").replaceChildren();
  const { model, score, positive, decision, threshold, pictures = [] } = aid;
  const limit = threshold === null ? null : element("p", { class: "note" }, `Threshold ${inWords(threshold)}`);
  const verdict = decision === null ? null : element("p", {}, "Decision ", element("strong", {}, decision));
  return byId("aid").replaceChildren(
    element("h2", { id: "aid-title" }, "Model"),
    element("p", { class: "note" }, model),
    element("p", { class: "score" }, `Score of ${positive} `, element("strong", {}, inWords(score))),
    scoreBar(aid),
    ...[limit, verdict].filter((part) => part !== null),
    ...pictures.map(pictureFigure),
  );
}

function scoreBar({ score, threshold, positive }) {
  const fill = element("span", { class: "fill" });
  fill.style.width = `${100 * score}%`;
  const label = `Score of ${positive}: ${inWords(score)} of 1`;
  const bar = element("div", { class: "bar", role: "img", "aria-label": label }, fill);
  if (threshold !== null) {
    const tick = element("span", { class: "tick" });
    tick.style.left = `${100 * threshold}%`;
    bar.append(tick);
  }
  return bar;
}

/** A picture of `usvit explain`; a click or Enter shows it large. */
function pictureFigure({ url, label, image }) {
  const name = `${label}, image ${image + 1}`;
  const open = () => {
    byId("picture").firstElementChild.replaceChildren(element("img", { src: url, alt: name }), name);
    byId("picture").showModal();
  };
  const small = element("img", { src: url, alt: "" });
  const button = element(
    "button",
    { type: "button", class: "picture", "aria-label": `Enlarge: ${name}`, onclick: open },
    small,
  );
  return element("figure", {}, button, element("figcaption", {}, name));
}
