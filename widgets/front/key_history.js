import { button, group, iconButton, pager, pushRight, scrollArea, selectBox } from "./controls.js";
import { element, fill, isClickOnRow, keepFocus } from "./dom.js";
import { plot } from "./plots.js";
import { screen } from "./screen.js";
import { heading, markCell, markHeading, note, numericColumns, plainHeading, rowClass, valueCell } from "./tables.js";
import { whyButton, whyPanel } from "./why.js";
import { number, plural } from "./words.js";

// The key history view: one key of a state table, a plot for each of its columns, and each of its changes.

// Characters that a field of the key has room for.
const SHORT_FIELD = 10;
const LONG_FIELD = 42;

export function render({ model, root, style }) {
  const { act, answered, frame, busy, problem } = screen({ model, root, style }, "screen key-history", draw);
  const head = keyHead({ act, answered, root });
  const message = element("div", { class: "empty" });
  const plots = columnPlots({ act }, model);
  const changes = keyChanges({ act, root });
  const why = whyPanel({ act, root });
  const naming = note();
  frame.append(head.node, naming.node, busy, problem, message, plots.node, changes.node, ...why.nodes);

  function draw(view) {
    frame.setAttribute("aria-label", `Key history in ${view.name}`);
    head.draw(view);
    naming.draw(view.naming);
    message.hidden = !view.why_empty;
    const similar = view.like.length ? element("div", {}, `Similar keys: ${view.like.join("; ")}.`) : "";
    message.replaceChildren(view.why_empty, similar);
    plots.draw(view);
    changes.draw(view);
    why.draw(view.why_empty ? {} : view);
  }
}

// Which key of which state table.
function keyHead({ act, answered, root }) {
  const name = element("span", { class: "name" });
  const table = selectBox("State table", (chosen) => act("table", chosen));
  const fields = element("form", { class: "fields", "aria-label": "Key" });
  const inputs = () => [...fields.querySelectorAll("input")];
  fields.addEventListener("submit", (event) => {
    event.preventDefault();
    act(
      "typed",
      inputs().map((input) => input.value),
    );
  });
  const summary = element("span", { class: "facts faint push", role: "status" });
  const node = element("div", { class: "bar head" }, name, table, fields, summary);

  function drawFields(columns) {
    const names = columns.map((column) => column.name).join("\n");
    if (fields.dataset.names !== names) {
      fields.dataset.names = names;
      fields.replaceChildren(...columns.map(keyField), element("button", { type: "submit" }, "Show"));
    }
    if (!answered() || fields.contains(root.activeElement)) return; // what is being typed stays
    for (const [i, input] of inputs().entries()) {
      input.value = columns[i].text;
      input.size = Math.min(Math.max(input.value.length, SHORT_FIELD), LONG_FIELD);
    }
  }

  function draw(view) {
    name.textContent = view.name;
    table.hidden = view.tables.length < 2;
    fill(table, view.tables, view.table);
    drawFields(view.fields);
    summary.textContent = summaryOf(view.page);
  }
  return { node, draw };
}

const keyField = ({ name }) =>
  element(
    "label",
    {},
    element("span", { class: "faint" }, name),
    element("input", { type: "text", size: SHORT_FIELD, autocomplete: "off", spellcheck: "false" }),
  );

export function summaryOf({ rows, offset, total }) {
  if (!total) return "";
  const removed = offset === 0 && rows[0]?.mark === "−";
  return `${plural(total, "change")}${removed ? " · currently absent" : ""}`;
}

// A plot for each column, as many as are drawn at once.
function columnPlots({ act }, model) {
  let plots = null;
  const pool = [];
  const earlier = iconButton("previous", "Earlier columns", () => act("column", plots.start - 1));
  const later = iconButton("next", "Later columns", () => act("column", plots.start + plots.charts.length));
  const which = element("span", { class: "faint" });
  const columns = element("div", { class: "bar" }, which, group("Columns", earlier, later));
  const notes = element("div", { class: "notes faint" });
  const place = element("div", { class: "multiples" });
  const node = element("section", { class: "plots", "aria-label": "Values over the epochs" }, columns, place, notes);

  function addPlot() {
    const drawn = plot(model, (_, value) => value?.row && act("change", { row: [...value.row] }));
    const title = element("strong", {});
    const rest = element("span", { class: "faint" });
    const multiple = element(
      "div",
      { class: "multiple" },
      element("div", { class: "caption" }, title, rest),
      drawn.figure,
    );
    pool.push({ multiple, drawn, title, rest });
    place.append(multiple);
  }

  function draw(view) {
    plots = view.plots;
    const { charts, start, total } = plots;
    node.hidden = charts.length === 0 && plots.notes.length === 0;
    columns.hidden = total <= charts.length;
    which.textContent = `Columns ${start + 1}–${start + charts.length} of ${number(total)}`;
    earlier.disabled = start === 0;
    later.disabled = start + charts.length >= total;
    notes.replaceChildren(...plots.notes.map((note) => element("div", {}, note)));
    while (pool.length < charts.length) addPlot();
    for (const [i, { multiple, drawn, title, rest }] of pool.entries()) {
      multiple.hidden = i >= charts.length;
      if (multiple.hidden) continue;
      const column = view.columns[start + i];
      title.textContent = column;
      rest.textContent = charts[i].label.slice(column.length + 1);
      drawn.show(charts[i]);
    }
  }
  return { node, draw };
}

// The changes of the key, newest first.
function keyChanges({ act, root }) {
  let view = null;
  const pageNumber = () => Math.floor(view.page.offset / view.size);
  const pages = pager({
    turn: (by) => act("page", pageNumber() + by),
    labels: ["Newer changes", "Older changes"],
    resize: (rows) => act("size", rows),
    sizeLabel: "Changes per page",
  });
  const controls = element("div", { class: "bar" }, element("strong", {}, "Changes"), pushRight(), ...pages.parts);
  const header = element("thead");
  const body = element("tbody");
  const grid = element("table", {}, header, body);
  const scroll = scrollArea("Changes of this key", {}, grid);
  const node = element("section", { class: "changes", "aria-label": "Changes" }, controls, scroll);

  function tableRow(row, place, numeric, now) {
    const title = "Go to this epoch, here and in the linked views";
    const go = button({ class: "link", title, onclick: () => act("epoch", place) }, `epoch ${row.epoch}`);
    const ask = () => act("why", row.epoch);
    const asks = view.why_not === "";
    const choose = (event) => asks && isClickOnRow(event, root) && ask();
    const values = row.cells.map((cell, i) => valueCell(cell, numeric[i], row.differ.includes(i) && "differs"));
    const absent = view.columns.length ? element("td", { class: "null", colspan: view.columns.length }, "absent") : "";
    return element(
      "tr",
      {
        class: rowClass(row.mark, now && "now", asks && "asks"),
        "aria-current": now ? "true" : null,
        onclick: choose,
      },
      markCell(row.mark),
      element("td", {}, go),
      element("td", { class: "faint" }, row.committed),
      element("td", {}, row.description),
      element("td", {}, row.cause, whyButton(view, row.epoch, ask)),
      ...(values.length ? values : [absent]),
    );
  }

  function draw(drawn) {
    view = drawn;
    const { rows, offset, total, now } = view.page;
    node.hidden = total === 0;
    pages.draw({ offset, rows: rows.length, total }, view.size, ", newest first");
    grid.setAttribute("aria-label", `Changes of ${view.key}`);
    const numeric = numericColumns(view.columns, rows, (row, i) => row.cells[i]);
    const headings = [
      markHeading("Kind"),
      ...["epoch", "committed", "change", "cause"].map((name) => plainHeading(name)),
      ...view.columns.map((column, i) => heading(column, numeric[i])),
    ];
    keepFocus(scroll, () => {
      header.replaceChildren(element("tr", {}, ...headings));
      body.replaceChildren(...rows.map((row, i) => tableRow(row, i, numeric, i === now)));
    });
  }
  return { node, draw };
}
