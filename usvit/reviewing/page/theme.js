/** The button for light or dark; until it is used, the page has the colours of the system. */

import { byId } from "./dom.js";

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  byId("theme").textContent = theme === "dark" ? "Light" : "Dark";
  byId("theme").setAttribute("aria-label", `Use ${theme === "dark" ? "light" : "dark"} colours`);
}

const system = matchMedia("(prefers-color-scheme: dark)");
setTheme(localStorage.getItem("theme") ?? (system.matches ? "dark" : "light"));
byId("theme").addEventListener("click", () => {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("theme", theme);
  setTheme(theme);
});
