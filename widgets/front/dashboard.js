import { choosable, drawWhenReleased, scrollArea, selectBox } from "./controls.js";
import { classes, element, fill, keepFocus } from "./dom.js";
import { operatorGraph } from "./operators.js";
import { labelledPlot } from "./plots.js";
import { screen } from "./screen.js";
import { cellClass, heading, numericColumns } from "./tables.js";
import { number } from "./words.js";

const FIGURES = ["rates", "duration", "watermark"];

// The query dashboard: its operators, its rates, and how the state of one table is spread over the partitions.
export function render({ model, root, style }) {
  let view = null;
  const { act, frame, busy, problem } = screen({ model, root, style }, "screen dashboard", (drawn) => {
    view = drawn;
    redraw();
  });
  const redraw = drawWhenReleased(frame, draw);
  const head = queryHead();
  const { parts, draw: drawOperators } = operatorGraph(act);
  const graph = section("graph", "Operators", element("h3", {}, "Operators"), ...parts);
  const plots = Object.fromEntries(FIGURES.map((name) => [name, labelledPlot(model)]));
  const figures = section("rates", "Rates", element("h3", {}, "Rates"), ...FIGURES.map((name) => plots[name].node));
  const spread = tableSpread({ act }, model);
  const empty = element(
    "div",
    { class: "empty" },
    "No epoch has been captured yet. The first one will appear here, with the state it left.",
  );
  const body = element("div", { class: "parts" }, graph, figures, spread.node);
  frame.append(head.node, busy, problem, head.troubles, empty, body);

  function draw() {
    frame.setAttribute("aria-label", `Dashboard of ${view.name}`);
    head.draw(view);
    empty.hidden = view.epoch !== null;
    graph.hidden = !view.operators;
    if (view.operators) drawOperators(view.operators, view.spread?.table);
    figures.hidden = !Object.keys(view.charts).length;
    for (const name of FIGURES) plots[name].show(view.charts[name]);
    spread.draw(view);
  }
}

const section = (name, label, ...children) =>
  element("section", { class: `part ${name}`, "aria-label": label }, ...children);

// The query's name and state, facts about it, and what is wrong with it.
function queryHead() {
  const name = element("span", { class: "name" });
  const state = element("span", { class: "status" });
  const facts = element("dl", { class: "facts" });
  const node = element("div", { class: "bar head" }, name, state, facts);
  const troubles = element("div", { class: "troubles", role: "status" });

  function drawTroubles(view) {
    const open = [...troubles.querySelectorAll("details")].some((details) => details.open);
    const lines = view.troubles.map((trouble) => troubleLine(trouble, open));
    const text = lines.map((line) => line.textContent).join("");
    if (troubles.textContent !== text) troubles.replaceChildren(...lines);
  }

  function draw(view) {
    name.textContent = view.name;
    state.textContent = view.state === "waiting" ? "asking Spark…" : view.state;
    state.className = `status ${view.state}`;
    state.hidden = !view.state;
    const known = view.epoch === null ? view.facts : [["epoch", number(view.epoch)], ...view.facts];
    facts.replaceChildren(
      ...known.map(([what, value]) =>
        element("div", { class: "fact" }, element("dt", {}, what), element("dd", {}, value)),
      ),
    );
    drawTroubles(view);
  }
  return { node, troubles, draw };
}

function troubleLine({ what, short, whole }, open) {
  const details = (text) =>
    element("details", { open }, element("summary", {}, "Full message"), element("pre", { tabindex: 0 }, text));
  return element("div", { class: "trouble" }, element("strong", {}, `${what}: `), short, whole ? details(whole) : "");
}

// How one state table is spread over the partitions, and which of its keys are written most often.
function tableSpread({ act }, model) {
  const table = selectBox("State table", (chosen) => act("table", chosen));
  const title = element("h3", {}, "Spread");
  const sentences = element("ul", { class: "sentences" });
  const map = labelledPlot(model);
  const keysTitle = element("h4", {}, "");
  const keys = scrollArea("Keys written most often", {});
  const head = element("div", { class: "title" }, title, table);
  const node = section("spread", "Spread of a state table", head, sentences, map.node, keysTitle, keys);

  function keysTable({ columns, keys: rows, epochs }) {
    const numeric = numericColumns(columns, rows, (row, i) => row.cells[i]);
    const headings = [
      ...columns.map((column, i) => heading(column, numeric[i])),
      heading("epochs written", true),
      heading("last", true),
    ];
    return element(
      "table",
      { "aria-label": "Keys written most often" },
      element("thead", {}, element("tr", {}, ...headings)),
      element("tbody", {}, ...rows.map((row, i) => keyRow(row, i, numeric, epochs))),
    );
  }

  function keyRow({ cells, writes, last, chosen }, place, numeric, epochs) {
    const bar = element("i", { class: "bar-of", "aria-hidden": "true" });
    bar.style.width = `${(100 * writes) / Math.max(epochs, 1)}%`;
    const attributes = {
      class: classes(chosen && "chosen"),
      "aria-current": chosen ? "true" : null,
      title: "Look at this key",
      ...choosable(() => act("key", place)),
    };
    const values = cells.map((cell, i) =>
      element("td", { class: cellClass(cell, numeric[i]), title: cell.whole }, cell.text),
    );
    const written = element("span", {}, `${number(writes)} of ${number(epochs)}`);
    return element(
      "tr",
      attributes,
      ...values,
      element("td", { class: "number writes" }, bar, written),
      element("td", { class: "number faint" }, number(last)),
    );
  }

  function draw({ spread, tables }) {
    node.hidden = !spread;
    map.show(spread?.chart);
    if (!spread) return;
    title.textContent = `Spread of ${spread.table} at epoch ${number(spread.epoch)}`;
    table.hidden = tables.length < 2;
    fill(table, tables, spread.table);
    sentences.replaceChildren(...spread.sentences.map((sentence) => element("li", {}, sentence)));
    const any = spread.keys.length > 0;
    keysTitle.textContent = any ? `Keys written most often in the last ${number(spread.epochs)} epochs` : "";
    keys.hidden = !any;
    keepFocus(keys, () => keys.replaceChildren(keysTable(spread)));
  }
  return { node, draw };
}
