/** What the model says about a case; built only where the stage sends it. */

import { byId, element, keyLabel } from "./dom.js";

const shortNumber = (value) => value.toFixed(2);

/** Show the aid of a task, or nothing where it is null. */
export function showAid(aid, viewer) {
  const overlays = viewer.setAid(aid);
  const section = byId("aid");
  section.hidden = aid === null;
  section.replaceChildren();
  if (aid === null) return;
  section.append(
    element("h2", { id: "aid-title" }, "Model"),
    element("p", { class: "note" }, aid.model),
    element("p", { class: "score" }, `Score of ${aid.positive} `, element("strong", {}, shortNumber(aid.score))),
    scoreBar(aid),
  );
  if (aid.threshold !== null) section.append(element("p", { class: "note" }, `Threshold ${shortNumber(aid.threshold)}`));
  if (aid.decision !== null) section.append(element("p", {}, "Decision ", element("strong", {}, aid.decision)));
  if (overlays.length) section.append(overlayControls(overlays, viewer));
}

function scoreBar({ score, threshold, positive }) {
  const fill = element("span", { class: "fill" });
  fill.style.width = `${100 * score}%`;
  const bar = element("div", { class: "bar", role: "img", "aria-label": `Score of ${positive}: ${shortNumber(score)} of 1` }, fill);
  if (threshold !== null) {
    const tick = element("span", { class: "tick" });
    tick.style.left = `${100 * threshold}%`;
    bar.append(tick);
  }
  return bar;
}

/** A switch for each kind of overlay, and how strong the maps are. */
function overlayControls(overlays, viewer) {
  const box = element("fieldset", {}, element("legend", {}, "Overlays ", keyLabel("O")));
  for (const label of new Set(overlays.map((overlay) => overlay.label))) {
    const input = element("input", { type: "checkbox", checked: true });
    input.addEventListener("change", () => {
      for (const overlay of overlays) if (overlay.label === label) overlay.shown = input.checked;
      viewer.overlaysChanged();
    });
    box.append(element("label", {}, input, element("span", {}, label)));
  }
  if (overlays.some(({ url }) => url)) {
    const slider = element("input", { type: "range", min: 0, max: 1, step: 0.1, value: viewer.opacity });
    slider.addEventListener("input", () => viewer.setOpacity(Number(slider.value)));
    viewer.opacityChanged = () => (slider.value = viewer.opacity);
    box.append(element("label", { class: "opacity" }, "Strength ", keyLabel("["), keyLabel("]"), slider));
  }
  return box;
}
