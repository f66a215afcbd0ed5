import { choosable, scrollArea } from "./controls.js";
import { classes, element, keepFocus } from "./dom.js";
import {
  cellText,
  holdKeyColumns,
  markCell,
  markHeading,
  numericColumns,
  plainHeading,
  rowClass,
  sortHeading,
  valueCell,
} from "./tables.js";
import { whyButton } from "./why.js";

// The keys that differ between two epochs, as a table: in the diff view, and for the debugger's last step.
export function differences(act) {
  let view = null;
  const header = element("thead");
  const body = element("tbody");
  const grid = element("table", {}, header, body);
  const scroll = scrollArea("Keys that differ", { class: "differences" }, grid);
  const empty = element("div", { class: "empty" });
  const hold = () => holdKeyColumns(grid, scroll);
  new ResizeObserver(hold).observe(scroll);

  function draw(drawn) {
    view = drawn;
    const keys = view.columns.filter((column) => column.key);
    const values = view.columns.filter((column) => !column.key);
    const rows = view.page.rows;
    const numeric = {
      keys: numericColumns(keys, rows, (row, i) => row.keys[i]),
      values: numericColumns(values, rows, (row, i) => row.values[i].now),
    };
    const [from, to] = view.sides;
    grid.setAttribute("aria-label", `${view.table}: differences from epoch ${from.epoch} to epoch ${to.epoch}`);
    grid.setAttribute("aria-rowcount", view.page.matching);
    const headings = [
      ...keys.map((column, i) => columnHeading(column, numeric.keys[i], view.selection, act)),
      ...values.map((column, i) => columnHeading(column, numeric.values[i], view.selection, act)),
    ];
    // From an epoch to the next, every key changed at the later one.
    const dated = Boolean(view.others) || Math.abs(to.epoch - from.epoch) > 1;
    if (dated) headings.push(plainHeading("changed at"));
    keepFocus(scroll, () => {
      header.replaceChildren(element("tr", {}, markHeading(), ...headings, pinnedHeading("cause")));
      body.replaceChildren(...rows.map((row, i) => tableRow(row, i, { ...numeric, dated })));
    });
    scroll.hidden = rows.length === 0;
    empty.hidden = rows.length > 0;
    empty.textContent = whyNoDifferences(view);
    hold();
  }

  function tableRow(row, place, { keys, values, dated }) {
    const chosen = view.page.chosen === place;
    const ask = (event) => {
      event.stopPropagation();
      act("why", { row: [place] });
    };
    const why = whyButton({ why: chosen ? view.why : null, why_not: view.why_not }, row.latest, ask, place);
    const attributes = {
      class: rowClass(row.mark, chosen && "chosen"),
      "aria-current": chosen ? "true" : null,
      title: "Show this key in the linked views",
      ...choosable(() => act("key", place)),
    };
    return element(
      "tr",
      attributes,
      markCell(row.mark),
      ...row.keys.map((cell, i) => valueCell(cell, keys[i], "held")),
      ...row.values.map((value, i) => beforeAndNow(value, values[i], row.mark === "~")),
      dated ? element("td", {}, row.epochs) : "",
      element("td", { class: "pinned" }, row.cause, why),
    );
  }
  return { scroll, empty, draw };
}

function columnHeading(column, numeric, selection, act) {
  const { order_by, by_size, relative, descending } = selection;
  const sorted = order_by === column.name;
  const next = nextOrder(column, selection);
  const measure = by_size ? (relative ? "%" : "±") : "";
  const arrow = sorted ? `${measure}${descending ? "▼" : "▲"}` : "";
  const title = orderTitle(column.name, next);
  const onclick = () => act("sort", next);
  return sortHeading(column, { sorted, descending, arrow, title, onclick }, numeric && "number", column.key && "held");
}

const pinnedHeading = (text) => element("th", { class: "pinned", scope: "col" }, text);

// What a click on the heading of a column sorts by next: if its values are numbers, by how far they moved from what they
// were, and then by how far they moved; then by value, ascending and descending, and then by key again.
export function nextOrder({ name, moves, ratios }, { order_by, by_size, relative, descending }) {
  const orders = [
    ...(ratios ? [{ size: true, relative: true, descending: true }] : []),
    ...(moves ? [{ size: true, relative: false, descending: true }] : []),
    { size: false, relative: false, descending: false },
    { size: false, relative: false, descending: true },
  ];
  const current = orders.findIndex(
    (order) => order.size === by_size && order.relative === relative && order.descending === descending,
  );
  const next = orders[order_by === name ? current + 1 : 0];
  return next ? { column: name, ...next } : { column: null };
}

function orderTitle(name, { column, size, relative, descending }) {
  if (!column) return `Sorted by ${name}; click to sort by key`;
  if (size) return `Sort by ${name}: the largest ${relative ? "relative " : ""}change first`;
  return `Sort by ${name}${descending ? ", descending" : ""}`;
}

export function whyNoDifferences({ selection, sides: [from, to], others }) {
  if (selection.text) return "No key that differs contains that text.";
  if (from.epoch === to.epoch && !others) return "These are the same epoch. Choose another one to compare with.";
  return "No key differs in this way between the two epochs.";
}

function beforeAndNow({ now, was, moved }, numeric, changed) {
  if (!was) return valueCell(now, numeric, changed && "quiet");
  return element(
    "td",
    {
      class: classes("differs", numeric && "number"),
      title: `was ${was.whole || was.text}, is ${now.whole || now.text}`,
    },
    element("span", { class: "was" }, was.text),
    element("span", { class: "arrow", "aria-hidden": "true" }, " → "),
    element("span", { class: "hidden" }, " became "),
    cellText(now),
    moved ? element("small", { class: moved[0] === "−" ? "down" : "up" }, ` ${moved}`) : "",
  );
}
