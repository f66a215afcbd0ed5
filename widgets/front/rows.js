import { button, scrollArea } from "./controls.js";
import { element, icon, isSelecting, keepFocus } from "./dom.js";
import {
  cellClass,
  cellText,
  holdKeyColumns,
  markCell,
  markHeading,
  numericColumns,
  rowClass,
  sortHeading,
} from "./tables.js";

// The rows of a state table at one epoch. A click or a key on a row shows the history of its key.
export function rowGrid({ act, answered, root }, pages, copies) {
  let view = null;
  let reached = 0; // the row that the Tab key leads to
  let afterClosing = null; // the row that gets the focus when what was opened from it is closed
  const header = element("thead");
  const body = element("tbody");
  const grid = element("table", {}, header, body);
  const scroll = scrollArea("Rows", {}, grid);
  const empty = element("div", { class: "empty" });
  const hold = () => holdKeyColumns(grid, scroll);
  new ResizeObserver(hold).observe(scroll); // the first drawing happens before the table is in the page

  function focusRow(place) {
    const target = body.children[Math.max(0, Math.min(place, body.children.length - 1))];
    for (const row of body.children) {
      row.tabIndex = row === target ? 0 : -1;
      for (const copy of row.querySelectorAll(".pinned button")) copy.tabIndex = row.tabIndex;
    }
    target?.focus();
  }

  const movesFrom = (place) => ({
    ArrowDown: () => focusRow(place + 1),
    ArrowUp: () => focusRow(place - 1),
    Home: () => focusRow(0),
    End: () => focusRow(body.children.length - 1),
    PageDown: () => pages.next.click(),
    PageUp: () => pages.previous.click(),
  });

  function tableRow(row, place, numeric) {
    const show = () => isSelecting(root, body) || act("key", place);
    const copy = () => row.copies.length && copies.show(view.copies, row.copies);
    const chosen = view.page.chosen === place;
    const attributes = {
      class: rowClass(row.mark, chosen && "chosen"),
      "aria-current": chosen ? "true" : null,
      "data-at": `row ${place}`,
      tabindex: place === reached ? 0 : -1,
      onclick: show,
      onkeydown: keyHandler({ Enter: show, " ": show, c: copy, ...movesFrom(place) }),
      onfocus: () => {
        reached = place;
      },
    };
    const cells = row.cells.map((cell, i) => tableCell(cell, { numeric: numeric[i], was: row.was[i], row: place, i }));
    return element("tr", attributes, markCell(row.mark), ...cells, copyCell(row, place, copy));
  }

  // What reads the row again is shown below, to be copied.
  function copyCell(row, place, copy) {
    const onclick = (event) => {
      event.stopPropagation();
      reached = place;
      copy();
    };
    const attributes = {
      class: "more",
      "aria-label": "Copy as magic, SQL or Python",
      title: "Copy what reads this row again: a magic, SQL or Python",
      "data-at": `copy ${place}`,
      tabindex: place === reached ? 0 : -1,
      onclick,
    };
    return element("td", { class: "pinned" }, row.copies.length ? button(attributes, icon("copy")) : "");
  }

  function tableCell(cell, { numeric, was, row, i }) {
    const column = view.page.columns[i];
    const long = cell.whole && cell.kind === "text";
    const open = (event) => {
      event.stopPropagation();
      reached = row;
      act("cell", { row, column: i });
    };
    const attributes = {
      class: cellClass(cell, numeric, was && "differs", column.key && "held", long && "long"),
      title: was ? `was ${was.whole || was.text}` : cell.whole,
      ondblclick: open,
    };
    const more = long ? wholeValueButton(column.name, `cell ${row} ${i}`, open) : "";
    return element("td", attributes, ...beforeAndAfter(cell, was, view.selection.rows === "changed"), more);
  }

  function drawTable({ columns, rows, matching }) {
    const numeric = numericColumns(columns, rows, (row, i) => row.cells[i]);
    grid.setAttribute("aria-label", `${view.table} at epoch ${view.epoch}`);
    grid.setAttribute("aria-rowcount", matching);
    reached = Math.max(0, Math.min(reached, rows.length - 1));
    keepFocus(scroll, () => {
      const headings = columns.map((column, i) => columnHeading(column, numeric[i], view.selection, act));
      const copy = element("th", { class: "pinned", scope: "col" }, element("span", { class: "hidden" }, "Copy"));
      header.replaceChildren(element("tr", {}, markHeading(), ...headings, copy));
      body.replaceChildren(...rows.map((row, i) => tableRow(row, i, numeric)));
    });
    hold();
  }

  function draw(drawn) {
    view = drawn;
    scroll.hidden = false;
    drawTable(view.page);
    if (afterClosing !== null && answered() && !view.history && !view.value) {
      body.children[afterClosing]?.focus({ preventScroll: true });
      afterClosing = null;
    }
    empty.hidden = view.page.rows.length > 0;
    empty.textContent = whyEmpty(view);
  }

  function drawWaiting(message) {
    scroll.hidden = true;
    empty.hidden = false;
    empty.textContent = message;
  }

  function focusOnceClosed(row) {
    afterClosing = row === undefined ? (afterClosing ?? reached) : (row ?? reached);
  }
  return { nodes: [scroll, empty], draw, drawWaiting, focusOnceClosed, focusRow: () => focusRow(reached) };
}

// Handles keys that are pressed on a row itself, not on a button in it.
const keyHandler = (work) => (event) => {
  if (event.target !== event.currentTarget || !work[event.key]) return;
  event.preventDefault();
  event.stopPropagation();
  work[event.key]();
};

function columnHeading(column, numeric, { order_by, descending }, act) {
  const sorted = order_by === column.name;
  const arrow = sorted ? (descending ? "▼" : "▲") : "";
  const title = `Sort by ${column.name}`;
  const onclick = () => act("sort", column.name);
  return sortHeading(column, { sorted, descending, arrow, title, onclick }, numeric && "number", column.key && "held");
}

export function whyEmpty({ selection, problem }) {
  if (selection.text) return "No row contains that text.";
  if (selection.where && !problem) return "No row matches the condition.";
  if (selection.rows === "changed") return "Nothing changed in this epoch.";
  return "The state is empty at this epoch.";
}

const wholeValueButton = (column, name, onclick) =>
  button(
    {
      class: "more",
      "aria-label": `Whole value of ${column}`,
      title: "Show the whole value",
      "data-at": name,
      onclick,
    },
    "⋯",
  );

// Among changes, the old value is seen beside the new one; elsewhere it is only read aloud.
const beforeAndAfter = (cell, was, seen) => [
  was && seen ? element("s", { dir: "auto" }, was.text) : "",
  cellText(cell),
  was && !seen ? element("span", { class: "hidden" }, `, was ${was.text}`) : "",
];
