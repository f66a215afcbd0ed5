import { button, scrollArea } from "./controls.js";
import { element, keepFocus } from "./dom.js";
import { heading, markCell, markHeading, numericColumns, plainHeading, rowClass, valueCell } from "./tables.js";
import { whyButton } from "./why.js";
import { number } from "./words.js";

const BEFORE = 3; // changes that stay in sight above the one in force

// The history of one key below the rows of the state browser.
export function keyHistory({ act }, close) {
  const node = element("section", { class: "history", "aria-label": "History of one key", hidden: true });
  let scrolledTo = ""; // key and epoch that the list was last scrolled to

  function draw(view) {
    const history = view.history;
    node.hidden = !history;
    if (!history) {
      scrolledTo = "";
      return;
    }
    const title = history.key.map(([name, cell]) => `${name} ${cell.text}`).join(", ");
    const inForce = history.changes.findIndex((change) => change.epoch <= view.epoch);
    const numeric = numericColumns(history.columns, history.changes, (change, i) => change.cells[i]);
    const rows = history.changes.map((change, place) => changeRow(view, change, numeric, place === inForce));
    const before = node.querySelector(".scroll")?.scrollTop || 0;
    const list = scrollArea("Changes of this key", {}, historyTable(history.columns, title, numeric, rows));
    keepFocus(node, () => node.replaceChildren(bar(history, title), list));
    list.scrollTop = before;
    const current = `${title} ${history.changes[inForce]?.epoch}`;
    if (current === scrolledTo) return;
    scrolledTo = current; // from then on the person scrolls
    if (inForce >= 0) list.scrollTop = rows[Math.max(0, inForce - BEFORE)].offsetTop - rows[0].offsetTop;
  }

  function bar({ changes, more }, title) {
    const older = more ? `the newest ${changes.length}; ${number(more)} older changes are not listed` : "";
    return element(
      "div",
      { class: "bar" },
      element("strong", {}, "History of "),
      title,
      element("span", { class: "faint" }, older),
      button({ class: "push", onclick: close }, "Close"),
    );
  }

  function changeRow(view, change, numeric, inForce) {
    const { columns } = view.history;
    const values = change.cells.map((cell, i) => valueCell(cell, numeric[i], change.changed.includes(i) && "differs"));
    const removed = element("td", { class: "null", colspan: columns.length || 1 }, "removed");
    const go = button(
      { title: "Go to this epoch", onclick: () => act("epoch", change.epoch) },
      `epoch ${change.epoch}`,
    );
    return element(
      "tr",
      { class: rowClass(change.mark, inForce && "now"), "aria-current": inForce ? "true" : null },
      markCell(change.mark),
      element(
        "td",
        {},
        go,
        whyButton(view, change.epoch, () => act("why", change.epoch)),
      ),
      element("td", { class: "faint" }, change.committed, change.after_gap ? " · first after a gap" : ""),
      ...(values.length ? values : [removed]),
    );
  }
  return { node, draw };
}

function historyTable(columns, title, numeric, rows) {
  const headings = [
    markHeading(),
    plainHeading("epoch"),
    plainHeading("committed"),
    ...columns.map((column, i) => heading(column, numeric[i])),
  ];
  return element(
    "table",
    { "aria-label": `History of ${title}` },
    element("thead", {}, element("tr", {}, ...headings)),
    element("tbody", {}, ...rows),
  );
}
