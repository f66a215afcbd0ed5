import { classes, element } from "./dom.js";

// Parts of the tables that show rows of state.

export const SIGNS = { added: "+", changed: "~", removed: "−" };
const ROW_CLASSES = { "+": "added", "~": "changed", "−": "removed" };
const MARKS_READ_ALOUD = { ...ROW_CLASSES, "": "unchanged" };

export const rowClass = (mark, ...more) => classes(ROW_CLASSES[mark], ...more);

// A line of text above the rows, if there is anything to say.
export function note() {
  const node = element("div", { class: "note-line faint", hidden: true });
  const draw = (text) => {
    node.hidden = !text;
    node.textContent = text;
  };
  return { node, draw };
}

// The sign of a row: what is seen, and what a screen reader reads aloud.
export const markCell = (mark) =>
  element(
    "td",
    { class: "mark" },
    element("span", { "aria-hidden": "true" }, mark),
    element("span", { class: "hidden" }, MARKS_READ_ALOUD[mark]),
  );

export const markHeading = (text = "Change") =>
  element("th", { class: "mark", scope: "col" }, element("span", { class: "hidden" }, text));

export const heading = (text, numeric = false) =>
  element("th", { scope: "col", class: numeric ? "number" : "" }, element("span", { class: "title" }, text));

export const plainHeading = (text, numeric = false) =>
  element("th", { scope: "col", class: numeric ? "number" : "" }, text);

// Which columns hold numbers: `cellOf(row, i)` is the cell of a row in the column at place `i`.
export const numericColumns = (columns, rows, cellOf) =>
  columns.map((_, i) => rows.some((row) => cellOf(row, i)?.kind === "number"));

export const cellText = (cell) =>
  element("span", { class: "text", dir: cell.kind === "text" ? "auto" : null }, cell.text);

export const cellClass = (cell, numeric, ...more) =>
  classes(numeric && "number", cell.kind === "null" && "null", ...more);

export const valueCell = (cell, numeric, ...more) =>
  element("td", { class: cellClass(cell, numeric, ...more), title: cell.whole }, cellText(cell));

// A heading that sorts: `arrow` says how it is sorted now, and is empty if it is not.
export const sortHeading = ({ name, key }, { sorted, descending, arrow, title, onclick }, ...more) =>
  element(
    "th",
    { scope: "col", class: classes(...more), "aria-sort": sorted ? (descending ? "descending" : "ascending") : "none" },
    element(
      "button",
      { type: "button", title, "data-at": `column ${name}`, onclick },
      element("span", { class: "title" }, name),
      key ? element("small", { class: "badge" }, "key") : "",
      element("span", { class: "way", "aria-hidden": "true" }, arrow),
    ),
  );

// The key columns, which have the class "held", stay in sight beside wide rows, unless they would take most of the room.
export function holdKeyColumns(grid, scroll) {
  const held = [...grid.querySelectorAll("thead .mark, thead .held")];
  const lefts = [0];
  for (const cell of held) lefts.push(lefts.at(-1) + cell.offsetWidth);
  grid.classList.toggle("holds", lefts.at(-1) > 0 && lefts.at(-1) < scroll.clientWidth / 2);
  for (const i of held.keys()) grid.style.setProperty(`--left-${i}`, `${lefts[i]}px`);
  for (const row of grid.rows) {
    for (const [i, cell] of [...row.cells].slice(0, held.length).entries()) {
      cell.style.setProperty("--left", `var(--left-${i})`);
    }
  }
}

// Counts of added, changed and removed keys: "+1", "~2" and "−0", with what stands after them and in their titles.
export const changeCount = (kind, text, attributes = {}, ...more) =>
  element("span", { class: `count ${text !== "0" ? kind : "none"}`, ...attributes }, `${SIGNS[kind]}${text}`, ...more);
