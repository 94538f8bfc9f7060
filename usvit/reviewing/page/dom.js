/** Elements of the page, and the two places where it speaks. */

/** Make an element: attributes, listeners (keys that begin with "on") and children; null children are left out. */
export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value != null) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}

export const byId = (id) => document.getElementById(id);

/** Show a key beside the words that it stands for. */
export const keyLabel = (key) => element("kbd", {}, key);

/** Tell what has just happened; screen readers read it aloud. */
export function say(text) {
  byId("status").textContent = text;
}

/** Tell what needs attention, until it is called with an empty text. */
export function warn(text) {
  byId("problem").textContent = text;
}

/** Show one of the sections of the page and hide the others. */
export function showSection(name) {
  for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== name;
  document.body.dataset.section = name;
}
