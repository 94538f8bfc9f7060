/** Where the page begins: light or dark, and the page of a reader or of the host. */

import { getState } from "./api.js";
import { byId, warn } from "./dom.js";
import { showOverview } from "./overview.js";
import { Reading } from "./reading.js";

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

try {
  const state = await getState();
  if (state.role === "host") showOverview(state);
  else new Reading(state);
} catch (error) {
  warn(error.message);
  throw error;
}
