import { button, drawPages, onEnter, pushRight, scrollArea } from "./controls.js";
import { classes, element } from "./dom.js";
import { epochSurface } from "./epoch_surface.js";
import { plot } from "./plots.js";
import { screen } from "./screen.js";
import { plainHeading } from "./tables.js";
import { duration, number } from "./words.js";

const SIGN_NAMES = {
  gaps: "gap",
  restarts: "restart",
  forks: "fork",
  variables: "shared variable set, or decision of a policy",
  versions: "version of the flow begins",
};

// The timeline: every epoch of a query on one axis, and the place to choose one or an interval of them.
export function render({ model, root, style }) {
  let view = null;
  const { act, answered, frame, busy, problem } = screen({ model, root, style }, "timeline screen", (drawn) => {
    view = drawn;
    draw();
  });
  const page = { act, answered, root };
  const head = timelineHead(page);
  const advice = element("ul", { class: "advice", "aria-label": "Advice" });
  const choice = epochChoice(page);
  const pointed = element("div", { class: "pointed" });
  const surface = epochSurface(act, () => drawPointed());
  const measures = measurePlots(model);
  const stack = element("div", { class: "stack" }, measures.node, surface.node);
  const caption = element("p", { class: "caption faint" });
  const table = epochTable(page);
  const empty = element(
    "div",
    { class: "empty", hidden: true },
    "No epoch has been captured yet. The first one will appear here.",
  );
  frame.append(head.node, busy, problem, advice, choice.node, pointed, stack, caption, ...table.nodes, empty);

  // The epoch under the pointer, or else the one that is selected, or else the newest.
  function drawPointed() {
    const point = surface.point();
    const [name, ...notes] = pointNotes(point, settingsIn(view.marks, point));
    pointed.replaceChildren(element("strong", {}, name), element("span", { class: "faint" }, notes.join(" · ")));
    measures.drawValues(view, point);
  }

  function draw() {
    for (const part of [choice.node, pointed, stack, caption, ...table.nodes]) part.hidden = view.waiting;
    empty.hidden = !view.waiting;
    advice.hidden = view.waiting || !view.advice.length;
    frame.setAttribute("aria-label", `Timeline of ${view.name}`);
    head.draw(view);
    if (view.waiting) return;
    const points = pointsOf(view.points);
    frame.style.setProperty("--axis", `${view.axis.labels}px`);
    surface.draw(view, points);
    measures.draw(view, points, surface);
    choice.draw(view);
    drawPointed();
    table.draw(view);
    caption.textContent = view.caption.join(" ");
    advice.replaceChildren(...view.advice.map(adviceItem));
  }
}

// A sentence, and what shows it.
const adviceItem = ({ text, evidence }) => element("li", {}, text, " ", element("span", { class: "faint" }, evidence));

// The points that are drawn: they arrive as columns.
export function pointsOf(columns) {
  const fields = Object.entries(columns);
  return columns.first.map((_, i) => Object.fromEntries(fields.map(([name, values]) => [name, values[i]])));
}

// What shared variables were set to, from an epoch of the point on.
export const settingsIn = (marks, { first, last }) =>
  marks.filter(({ text, epoch }) => text && first <= epoch + 0.5 && epoch + 0.5 <= last).map(({ text }) => text);

export function pointNotes({ first, last, captured, gaps, committed, run }, settings = []) {
  const name = first === last ? `epoch ${last}` : `epochs ${first}–${last}`;
  if (!captured) return [name, "a gap: Spark purged it before it was captured"];
  const notes = [gaps && `${number(gaps)} of them gaps`, committed && `committed ${committed}`, run && `run ${run}`];
  return [name, ...settings, ...notes.filter(Boolean)];
}

// Which query, and how many of its epochs are shown.
function timelineHead({ act, root }) {
  const name = element("span", { class: "name" });
  const facts = element("span", { class: "facts" });
  const windows = element("span", { class: "group push", role: "group", "aria-label": "Epochs shown" });
  const node = element("div", { class: "bar head" }, name, facts, windows);

  function drawWindows({ offered, chosen }) {
    windows.hidden = offered.length < 2;
    const current = offered.includes(chosen) ? chosen : null;
    const focused = [...windows.children].indexOf(root.activeElement);
    const buttons = offered.map((size) =>
      button(
        { "aria-pressed": String(size === current), onclick: () => act("window", size) },
        size === null ? "All" : `Last ${size}`,
      ),
    );
    windows.replaceChildren(...buttons);
    windows.children[focused]?.focus();
  }

  function draw(view) {
    name.textContent = view.name;
    facts.hidden = windows.hidden = view.waiting;
    if (view.waiting) return;
    facts.replaceChildren(...view.facts.map((text) => element("span", { class: "fact" }, text)));
    drawWindows(view.window);
  }
  return { node, draw };
}

// What is selected, and two fields to type it.
function epochChoice({ act, answered, root }) {
  const name = element("strong", { class: "chosen", role: "status" });
  const notes = element("span", { class: "faint" });
  const [from, to] = ["From epoch", "To epoch"].map((label) =>
    element("input", { type: "number", step: 1, "aria-label": label }),
  );
  const commit = () => act(...selectionOf([from.value, to.value]));
  for (const input of [from, to]) {
    input.addEventListener("change", commit);
    onEnter(input, commit);
  }
  const clear = button({ onclick: () => act("clear") }, "Clear");
  const ends = element(
    "span",
    { class: "ends push" },
    element("span", { class: "faint", "aria-hidden": "true" }, "epochs"),
    from,
    element("span", { "aria-hidden": "true" }, "–"),
    to,
    clear,
  );
  const node = element("div", { class: "bar transport" }, name, notes, ends);

  function draw({ selected, epochs }) {
    name.textContent = selected ? selected.text : "no epoch selected";
    name.classList.toggle("faint", !selected);
    const known = selected ? [...selected.facts, selected.outside ? "outside the epochs shown" : ""] : [];
    notes.textContent = selected ? known.filter(Boolean).join(" · ") : "click an epoch, or drag over several";
    clear.disabled = !selected;
    const values = [selected?.from, selected?.to];
    for (const [i, input] of [from, to].entries()) {
      [input.min, input.max] = epochs;
      if (answered() && root.activeElement !== input) input.value = values[i] ?? "";
    }
  }
  return { node, draw };
}

// The action for what stands in the two fields.
export function selectionOf(texts) {
  const filled = texts.map((text) => text.trim()).filter(Boolean);
  const epochs = filled.map(Number).filter(Number.isInteger);
  if (epochs.length === 2) return ["between", epochs];
  return epochs.length === 1 ? ["epoch", epochs[0]] : ["clear"];
}

// A plot for each measure, one below the other.
function measurePlots(model) {
  const plots = new Map();
  const node = element("div", { class: "measures" });

  function build(names) {
    plots.clear();
    for (const name of names) plots.set(name, measurePlot(model));
    node.replaceChildren(...[...plots.values()].map((chart) => chart.node));
  }

  function draw({ measures, charts, marks, gaps }, points, surface) {
    const names = measures.map((measure) => measure.name);
    if (names.join() !== [...plots.keys()].join()) build(names);
    const rows = [...points.map((point) => ({ kind: "point", ...point })), ...marks];
    for (const [i, measure] of measures.entries()) {
      const { title, drawn, hatches } = plots.get(measure.name);
      title.replaceChildren(measure.title, element("small", { class: "faint" }, measure.fold));
      title.title = measure.meaning;
      hatches.replaceChildren(...gaps.map((run) => surface.over(element("i"), run)));
      drawn.show({ ...charts[i], rows });
    }
  }

  function drawValues({ measures }, point) {
    for (const { name, unit } of measures) plots.get(name).value.textContent = measured(point[name], unit);
  }
  return { node, draw, drawValues };
}

export function measured(value, unit) {
  if (value === null) return "–";
  return unit === "rows" ? number(value) : duration(value);
}

function measurePlot(model) {
  const title = element("span");
  const value = element("span", { class: "value" });
  const drawn = plot(model);
  const hatches = element("div", { class: "layer hatches", "aria-hidden": "true" });
  const caption = element("div", { class: "title" }, title, value);
  return { node: element("div", { class: "measure" }, caption, drawn.figure, hatches), title, value, drawn, hatches };
}

// The same numbers as a table, and the legend of the plots.
function epochTable({ act, root }) {
  let view = null;
  const legend = element("span", { class: "legend" });
  const toggle = button({ "aria-expanded": "false", onclick: () => act("table", !view.table) }, "Show as table");
  const table = element("table", { "aria-label": "Epochs" });
  const scroll = scrollArea("Epochs as a table", {}, table);
  const count = button({ title: "Reads the state", onclick: () => act("count", true) }, "Count state rows");
  const text = element("span", { class: "pager faint" });
  const newer = button({ onclick: () => act("page", view.table.page - 1) }, "Newer");
  const older = button({ onclick: () => act("page", view.table.page + 1) }, "Older");
  const foot = element("div", { class: "bar" }, legend, pushRight(), count, text, newer, older, toggle);

  function drawLegend() {
    const shown = Object.entries(SIGN_NAMES).filter(([kind]) => view.legend[kind]);
    legend.replaceChildren(
      ...shown.map(([kind, name]) =>
        element("span", { class: `sign ${kind}` }, element("i", { "aria-hidden": "true" }), name),
      ),
    );
  }

  function draw(drawn) {
    view = drawn;
    drawLegend();
    if (!view.uncounted && root.activeElement === count) toggle.focus();
    count.hidden = !view.uncounted;
    const open = Boolean(view.table);
    toggle.textContent = open ? "Hide the table" : "Show as table";
    toggle.setAttribute("aria-expanded", String(open));
    for (const part of [scroll, text, newer, older]) part.hidden = !open;
    if (!open) return;
    const { rows, offset, total, titles } = view.table;
    const place = { offset, rows: rows.length, total };
    drawPages({ text, previous: newer, next: older }, place, " epochs, newest first");
    const headings = [
      plainHeading("Epoch"),
      plainHeading("Committed"),
      ...titles.map((title) => plainHeading(title, true)),
      plainHeading("Run"),
    ];
    table.replaceChildren(
      element("thead", {}, element("tr", {}, ...headings)),
      element("tbody", {}, ...rows.map((row) => epochRow(row, view.selected))),
    );
  }
  return { nodes: [foot, scroll], draw };
}

function epochRow(row, selected) {
  const chosen = selected && row.epoch >= selected.from && row.epoch <= selected.to;
  return element(
    "tr",
    { class: classes(chosen && "chosen") },
    element("th", { scope: "row" }, row.epoch),
    element("td", { class: row.gap ? "null" : "" }, row.gap ? "a gap: not captured" : row.committed),
    ...row.cells.map((cell) => element("td", { class: "number" }, cell)),
    element("td", { class: "faint" }, row.run),
  );
}
