import { classes, element } from "./dom.js";

// Parts of the tables that show rows of state.

export const SIGNS = { added: "+", changed: "~", removed: "−" };
const ROW_CLASSES = { "+": "added", "~": "changed", "−": "removed" };
const MARKS_READ_ALOUD = { ...ROW_CLASSES, "": "unchanged" };

export const rowClass = (mark, ...more) => classes(ROW_CLASSES[mark], ...more);

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
      key ? element("small", {}, "key") : "",
      element("span", { class: "way", "aria-hidden": "true" }, arrow),
    ),
  );

// Counts of added, changed and removed keys: "+1", "~2" and "−0", with what stands after them and in their titles.
export const changeCount = (kind, text, attributes = {}, ...more) =>
  element("span", { class: `count ${text !== "0" ? kind : "none"}`, ...attributes }, `${SIGNS[kind]}${text}`, ...more);
