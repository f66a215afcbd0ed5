import { element, fill, keep, number } from "./dom.js";
import { operatorGraph } from "./operators.js";
import { plot } from "./plots.js";
import { screen } from "./screen.js";

// The query dashboard: its operators, its rates, and how the state of one table is spread.
const FIGURES = ["rates", "duration", "watermark"];

export function render({ model, root, style }) {
  let view = null;
  const { act, frame, busy, problem } = screen({ model, root, style }, "screen dashboard", (drawn) => { view = drawn; if (pressed) late = true; else draw(); });

  // What is under a pressed pointer stays until it is let go: a button that is drawn anew meanwhile hears no click.
  let pressed = false;
  let late = false;
  const release = () => setTimeout(() => { pressed = false; if (late) draw(); late = false; }, 0);
  frame.addEventListener("pointerdown", () => { pressed = true; for (const end of ["pointerup", "pointercancel"]) window.addEventListener(end, release, { once: true }); });

  const name = element("span", { class: "name" });
  const state = element("span", { class: "status" });
  const facts = element("dl", { class: "facts" });
  const head = element("div", { class: "bar head" }, name, state, facts);
  const troubles = element("div", { class: "troubles", role: "status" });

  const { parts: drawnOperators, draw: operators } = operatorGraph(act);
  const graph = element("section", { class: "part graph", "aria-label": "Operators" }, element("h3", {}, "Operators"), ...drawnOperators);

  const figures = element("section", { class: "part rates", "aria-label": "Rates" }, element("h3", {}, "Rates"));
  const plots = Object.fromEntries(FIGURES.map((each) => [each, labelled(figures)]));

  const table = element("select", { "aria-label": "State table", onchange: () => act("table", table.value) });
  const spreadOf = element("h3", {}, "Spread");
  const sentences = element("ul", { class: "sentences" });
  const keys = element("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Keys written most often" });
  const keysTitle = element("h4", {}, "");
  const spread = element("section", { class: "part spread", "aria-label": "Spread of a state table" },
    element("div", { class: "title" }, spreadOf, table), sentences);
  const map = labelled(spread);
  spread.append(keysTitle, keys);

  const empty = element("div", { class: "empty" });
  const parts = element("div", { class: "parts" }, graph, figures, spread);
  frame.append(head, busy, problem, troubles, empty, parts);

  // A plot with its label above it.
  function labelled(parent) {
    const title = element("h4", {});
    const drawn = plot(model);
    const whole = element("div", { hidden: true }, title, drawn.figure);
    drawn.figure.setAttribute("role", "img");
    parent.append(whole);
    return (chart) => {
      whole.hidden = !chart;
      if (!chart) return;
      title.textContent = chart.label;
      drawn.show(chart);
    };
  }

  function drawHead() {
    name.textContent = view.name;
    frame.setAttribute("aria-label", `Dashboard of ${view.name}`);
    state.textContent = view.state === "waiting" ? "asking Spark…" : view.state;
    state.className = `status ${view.state}`;
    state.hidden = !view.state;
    const told = view.epoch === null ? view.facts : [["epoch", number(view.epoch)], ...view.facts];
    facts.replaceChildren(...told.map(([what, value]) => element("div", { class: "fact" }, element("dt", {}, what), element("dd", {}, value))));
    const open = [...troubles.querySelectorAll("details")].some((each) => each.open);
    const lines = view.troubles.map(({ what, short, whole }) => element("div", { class: "trouble" }, element("strong", {}, `${what}: `), short,
      whole ? element("details", { open }, element("summary", {}, "All of it"), element("pre", { tabindex: 0 }, whole)) : ""));
    if (troubles.textContent !== lines.map((each) => each.textContent).join("")) troubles.replaceChildren(...lines);
  }

  function drawGraph() {
    graph.hidden = !view.operators;
    if (view.operators) operators(view.operators, view.spread && view.spread.table);
  }

  function drawSpread() {
    spread.hidden = !view.spread;
    if (!view.spread) return map(null);
    const { table: which, sentences: said, chart, columns, keys: heavy, epochs, epoch } = view.spread;
    spreadOf.textContent = `Spread of ${which} at epoch ${number(epoch)}`;
    table.hidden = view.tables.length < 2;
    fill(table, view.tables, which);
    sentences.replaceChildren(...said.map((each) => element("li", {}, each)));
    map(chart);
    keysTitle.textContent = heavy.length ? `Keys written most often in the last ${number(epochs)} epochs` : "";
    keys.hidden = !heavy.length;
    const numeric = columns.map((_, i) => heavy.some((one) => one.cells[i].kind === "number"));
    const heading = (text, right) => element("th", { scope: "col", class: right ? "number" : "" }, element("span", { class: "title" }, text));
    keep(keys, () => keys.replaceChildren(element("table", { "aria-label": "Keys written most often" },
      element("thead", {}, element("tr", {}, ...columns.map((each, i) => heading(each, numeric[i])), heading("epochs written", true), heading("last", true))),
      element("tbody", {}, ...heavy.map((one, i) => line(one, i, numeric, epochs))))));
  }

  function line({ cells, writes, last, chosen }, i, numeric, epochs) {
    const show = () => act("key", i);
    const press = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); show(); } };
    const bar = element("i", { class: "bar-of", "aria-hidden": "true" });
    bar.style.width = `${(100 * writes) / Math.max(epochs, 1)}%`;
    return element("tr", { tabindex: 0, class: chosen ? "chosen" : "", "aria-current": chosen ? "true" : null, title: "Look at this key", onclick: show, onkeydown: press },
      ...cells.map((cell, c) => element("td", { class: [numeric[c] && "number", cell.kind === "null" && "null"].filter(Boolean).join(" "), title: cell.whole }, cell.text)),
      element("td", { class: "number writes" }, bar, element("span", {}, `${number(writes)} of ${number(epochs)}`)), element("td", { class: "number faint" }, number(last)));
  }

  function draw() {
    drawHead();
    const waiting = view.epoch === null;
    empty.hidden = !waiting;
    empty.textContent = "No epoch is captured yet. The first will show here, with the state it left.";
    drawGraph();
    figures.hidden = !Object.keys(view.charts).length;
    for (const each of FIGURES) plots[each](view.charts[each] || null);
    drawSpread();
  }
}
