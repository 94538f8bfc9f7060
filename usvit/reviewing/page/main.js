/** Where the page begins: the page of a reader or of the host. */

import { getState } from "./api.js";
import { warn } from "./dom.js";
import { showOverview } from "./overview.js";
import { Reading } from "./reading.js";
import "./theme.js";

try {
  const state = await getState();
  if (state.role === "host") showOverview(state);
  else new Reading(state);
} catch (error) {
  warn(error.message);
  throw error;
}
