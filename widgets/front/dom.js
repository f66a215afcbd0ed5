// What every view builds its page from. All text enters the page as text nodes, never as HTML.

const ICONS = {
  first: "M3 2h2v12H3zM13 3.4L8.4 8l4.6 4.6-1.4 1.4-6-6 6-6z",
  previous: "M11 3.4L6.4 8l4.6 4.6L9.6 14l-6-6 6-6z",
  play: "M4 2l9 6-9 6z",
  pause: "M3 2h4v12H3zM9 2h4v12H9z",
  next: "M5 3.4L9.6 8 5 12.6 6.4 14l6-6-6-6z",
  last: "M11 2h2v12h-2zM3 3.4L7.6 8 3 12.6 4.4 14l6-6-6-6z",
};
export const KINDS = { "+": "added", "~": "changed", "−": "removed" };
export const SAID = { "+": "added", "~": "changed", "−": "removed", "": "unchanged" };

export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== undefined && value !== null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

export function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  const path = document.createElementNS(space, "path");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

export const number = (value) => value.toLocaleString("en-US");

// The options of a select, changed only where they differ, so that an open list stays open.
export function fill(select, names, value) {
  const known = [...select.options].map((option) => option.value);
  if (known.join("\n") !== names.join("\n")) select.replaceChildren(...names.map((each) => element("option", { value: each }, each)));
  if (select.getRootNode().activeElement !== select) select.value = value;
}

// The sign of a row: what a sighted person sees, and what is read aloud.
export const mark = (sign) => element("td", { class: "mark" }, element("span", { "aria-hidden": "true" }, sign), element("span", { class: "hidden" }, SAID[sign]));

// Rows are drawn anew each time: give the focus back to where it was, to what has the same name (data-at) or number.
export function keep(parent, draw) {
  const nodes = () => [...parent.querySelectorAll("button, tr[tabindex]")];
  const active = parent.getRootNode().activeElement;
  const focused = nodes().indexOf(active);
  const named = active?.dataset.at;
  draw();
  if (focused < 0) return;
  const again = named ? nodes().find((node) => node.dataset.at === named) : nodes()[focused];
  again?.focus({ preventScroll: true });
}
