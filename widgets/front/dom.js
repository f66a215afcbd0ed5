// What every view builds its page from. All text enters the page as text nodes, never as HTML.

const ICONS = {
  first: "M3 2h2v12H3zM13 3.4L8.4 8l4.6 4.6-1.4 1.4-6-6 6-6z",
  previous: "M11 3.4L6.4 8l4.6 4.6L9.6 14l-6-6 6-6z",
  play: "M4 2l9 6-9 6z",
  pause: "M3 2h4v12H3zM9 2h4v12H9z",
  next: "M5 3.4L9.6 8 5 12.6 6.4 14l6-6-6-6z",
  copy: "M2 1h9v2H4v9H2zM6 5h8v10H6zm2 2v6h4V7z",
  last: "M11 2h2v12h-2zM3 3.4L7.6 8 3 12.6 4.4 14l6-6-6-6z",
};

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

export function svgElement(tag, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

export function icon(name) {
  const svg = svgElement("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" });
  svg.append(svgElement("path", { d: ICONS[name] }));
  return svg;
}

export const classes = (...names) => names.filter(Boolean).join(" ");

export const fact = (name, value) => element("span", { class: "fact" }, element("b", {}, name), ` ${value}`);

// Replace the options of a select only if they differ, so that an open list stays open.
export function fill(select, names, value) {
  const known = [...select.options].map((option) => option.value);
  if (known.join("\n") !== names.join("\n")) {
    select.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
  }
  if (select.getRootNode().activeElement !== select) select.value = value;
}

// Text that is being selected, to be copied, is not a click on a row.
export function isSelecting(root, rows) {
  const selection = root.getSelection ? root.getSelection() : document.getSelection();
  return Boolean(selection && !selection.isCollapsed && rows.contains(selection.anchorNode));
}

// Whether a click was on the row itself, not on a button in it.
export const isClickOnRow = (event, root) => !event.target.closest("button") && !isSelecting(root, event.currentTarget);

// Redraw rows and give the focus back to the button or row with the same data-at, or else at the same place.
export function keepFocus(parent, draw) {
  const focusable = () => [...parent.querySelectorAll("button, tr[tabindex]")];
  const active = parent.getRootNode().activeElement;
  const place = focusable().indexOf(active);
  const name = active?.dataset.at;
  draw();
  if (place < 0) return;
  const target = name ? focusable().find((node) => node.dataset.at === name) : focusable()[place];
  target?.focus({ preventScroll: true });
}
