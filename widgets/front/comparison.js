import { element, fill } from "./dom.js";
import { plot } from "./plots.js";
import { screen } from "./screen.js";

// Two timelines side by side: how many keys differ at each epoch, and the values of a few of them in both.
export function render({ model, root, style }) {
  let view = null;
  const { act, frame, busy, problem } = screen({ model, root, style }, "screen comparison", (drawn) => { view = drawn; draw(); });
  const name = element("span", { class: "name" });
  const table = element("select", { "aria-label": "State table", onchange: () => act("table", table.value) });
  const column = element("select", { "aria-label": "Column whose values are drawn", onchange: () => act("column", column.value) });
  const told = element("div", { class: "told", role: "status" });
  const whole = labelled();
  const keys = element("div", { class: "keys" });
  const chosen = element("label", { class: "bar" }, element("span", { class: "faint" }, "The first keys that differ:"), column);
  let plots = [];
  frame.append(element("div", { class: "bar head" }, name, table), busy, problem, told, whole.node, chosen, keys);

  function labelled() {
    const title = element("h4", {});
    const drawn = plot(model);
    drawn.figure.setAttribute("role", "img");
    return { node: element("div", { class: "labelled" }, title, drawn.figure), show: (chart) => { title.textContent = chart.label; drawn.show(chart); } };
  }

  function draw() {
    frame.setAttribute("aria-label", `Comparison of ${view.name}`);
    name.textContent = view.name;
    table.hidden = view.tables.length < 2;
    fill(table, view.tables, view.table);
    told.replaceChildren(...view.told.slice(1).map((line) => element("p", {}, line)));
    whole.node.hidden = !view.epochs;
    if (view.epochs) whole.show(view.epochs);
    chosen.hidden = !view.columns.length;
    if (view.columns.length) fill(column, view.columns, view.column);
    if (plots.length !== view.values.length) {
      plots = view.values.map(labelled);
      keys.replaceChildren(...plots.map((each) => each.node));
    }
    view.values.forEach((chart, i) => plots[i].show(chart));
  }
}
