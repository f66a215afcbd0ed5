import { selectBox } from "./controls.js";
import { element, fill } from "./dom.js";
import { labelledPlot } from "./plots.js";
import { screen } from "./screen.js";

// Two timelines side by side: how many keys differ at each epoch, and the values of a few of them in both.
export function render({ model, root, style }) {
  const { act, frame, busy, problem } = screen({ model, root, style }, "screen comparison", draw);
  const name = element("span", { class: "name" });
  const table = selectBox("State table", (chosen) => act("table", chosen));
  const column = selectBox("Column whose values are drawn", (chosen) => act("column", chosen));
  const summary = element("div", { class: "summary", role: "status" });
  const differing = labelledPlot(model);
  const keys = element("div", { class: "keys" });
  const caption = element("span", { class: "faint" }, "The first keys that differ:");
  const chosenColumn = element("label", { class: "bar" }, caption, column);
  let plots = [];
  const head = element("div", { class: "bar head" }, name, table);
  frame.append(head, busy, problem, summary, differing.node, chosenColumn, keys);

  function draw(view) {
    frame.setAttribute("aria-label", `Comparison of ${view.name}`);
    name.textContent = view.name;
    table.hidden = view.tables.length < 2;
    fill(table, view.tables, view.table);
    summary.replaceChildren(...view.sentences.slice(1).map((sentence) => element("p", {}, sentence)));
    differing.show(view.epochs);
    chosenColumn.hidden = !view.columns.length;
    if (view.columns.length) fill(column, view.columns, view.column);
    if (plots.length !== view.values.length) {
      plots = view.values.map(() => labelledPlot(model));
      keys.replaceChildren(...plots.map(({ node }) => node));
    }
    for (const [i, chart] of view.values.entries()) plots[i].show(chart);
  }
}
