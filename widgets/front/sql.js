import { button, pager, scrollArea } from "./controls.js";
import { element } from "./dom.js";
import { screen } from "./screen.js";
import { numericColumns, plainHeading, valueCell } from "./tables.js";

// An SQL statement over the store, and the first rows of its result.
export function render({ model, root, style }) {
  const { act, answered, frame, busy, problem } = screen({ model, root, style }, "screen sql", draw);
  let view = null;
  const run = () => act("run", statement.value);
  const name = element("span", { class: "name" });
  const relations = element("details", { class: "relations" });
  const statement = element("textarea", {
    rows: 5,
    "aria-label": "SQL statement",
    spellcheck: "false",
    autocomplete: "off",
    onkeydown: (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      run();
    },
  });
  const start = button({ class: "run", title: "Run the statement (Ctrl+Enter)", onclick: run }, "Run");
  const summary = element("span", { class: "faint", role: "status" });
  const pages = pager({
    turn: (by) => act("page", Math.floor(view.offset / view.selection.size) + by),
    resize: (rows) => act("size", rows),
  });
  const turning = element("span", { class: "pages push" }, ...pages.parts);
  const wrong = element("div", { class: "wrong", role: "alert", hidden: true });
  const result = scrollArea("Result", {});
  frame.append(
    element("div", { class: "bar head" }, name),
    relations,
    element("div", { class: "statement" }, statement),
    element("div", { class: "bar" }, start, summary, turning),
    busy,
    problem,
    wrong,
    result,
  );

  function drawRelations() {
    const known = view.relations.map(({ name: relation }) => relation).join("\n");
    if (relations.dataset.known === known) return;
    relations.dataset.known = known;
    const lines = view.relations.map((relation) =>
      element("div", {}, element("code", {}, relation.name), ` ${relation.columns.join(", ")}`),
    );
    const more = element(
      "div",
      { class: "faint" },
      "VERSION AS OF 12 after a name reads a past epoch; .history has all versions, .changes the changes.",
    );
    relations.replaceChildren(element("summary", {}, "Relations of this query"), ...lines, more);
  }

  // What is being typed stays, unless the address names another statement.
  function drawStatement() {
    const { sql } = view.selection;
    if (statement.dataset.sql === sql || !answered()) return;
    statement.dataset.sql = sql;
    if (sql || root.activeElement !== statement) statement.value = sql;
    statement.placeholder = view.relations.length ? `SELECT * FROM ${view.relations[0].name} LIMIT 10` : "";
  }

  function draw(drawn) {
    view = drawn;
    frame.setAttribute("aria-label", `SQL over ${view.name}`);
    name.textContent = view.name;
    drawRelations();
    drawStatement();
    summary.textContent = view.busy ? "running…" : view.summary;
    wrong.hidden = !view.problem;
    wrong.textContent = view.problem;
    const place = { offset: view.offset, rows: view.rows.length, total: view.total };
    turning.hidden = view.total <= 10;
    pages.draw(place, view.selection.size);
    result.hidden = view.columns.length === 0;
    result.replaceChildren(resultTable(view));
  }
}

function resultTable({ columns, rows }) {
  const numeric = numericColumns(columns, rows, (row, i) => row[i]);
  const headings = columns.map((column, i) => plainHeading(column, numeric[i]));
  return element(
    "table",
    { "aria-label": "Result" },
    element("thead", {}, element("tr", {}, ...headings)),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell, i) => valueCell(cell, numeric[i]))))),
  );
}
