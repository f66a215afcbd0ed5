import { selectBox } from "./controls.js";
import { rowCopies } from "./copies.js";
import { element, fact, fill } from "./dom.js";
import { epochTransport } from "./epoch_slider.js";
import { help } from "./help.js";
import { keyHistory } from "./key_panel.js";
import { columnWindow, rowControls } from "./row_controls.js";
import { rowGrid } from "./rows.js";
import { screen } from "./screen.js";
import { legend } from "./slider_marks.js";
import { changeCount, note } from "./tables.js";
import { wholeValue } from "./whole_value.js";
import { whyPanel } from "./why.js";
import { number } from "./words.js";

// The state browser: which state of which query, at which epoch, and its rows.
export function render({ model, root, style }) {
  let view = null;
  const { act, answered, frame, busy, problem } = screen({ model, root, style }, "browser", (drawn) => {
    view = drawn;
    draw();
  });
  const page = { act, answered, root };
  const keys = help();
  const head = browserHead(page, keys.button);
  const transport = epochTransport(page);
  const controls = rowControls(page);
  const columns = columnWindow(page);
  const copies = rowCopies(() => grid.focusRow());
  const grid = rowGrid(page, controls.pages, copies);
  const naming = note();
  const closeValue = () => {
    grid.focusOnceClosed();
    act("cell", null);
  };
  const closeHistory = () => {
    grid.focusOnceClosed(view.page.chosen);
    act("key", null);
  };
  const value = wholeValue(closeValue);
  const history = keyHistory(page, closeHistory);
  frame.append(head.node, transport.node, busy, problem, ...controls.nodes, columns.node, naming.node, ...grid.nodes);
  const why = whyPanel(page);
  frame.append(copies.node, value.node, history.node, ...why.nodes, keys.dialog);

  const shortcuts = shortcutsOf(() => view, {
    controls,
    keys,
    transport,
    closeValue,
    closeWhy: why.close,
    closeHistory,
    copies,
    root,
  });
  frame.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || keys.dialog.open || !view || view.epoch === null) return;
    const work = shortcuts(event.key);
    if (!work) return;
    event.preventDefault();
    work();
  });

  function drawWaiting() {
    const parts = [...controls.nodes, columns.node, naming.node, copies.node, value.node, history.node, transport.node];
    for (const node of parts) node.hidden = true;
    why.draw({});
    head.drawWaiting(view);
    grid.drawWaiting("No epoch has been captured yet. The first one will appear here.");
  }

  function draw() {
    if (view.epoch === null) return drawWaiting();
    frame.setAttribute("aria-label", `State of ${view.name}`);
    for (const part of [head, transport, controls, columns]) part.draw(view);
    naming.draw(view.naming);
    value.draw(view.value);
    grid.draw(view);
    history.draw(view);
    why.draw(view.history ? view : {});
  }
}

// What a key does now, if anything. While something is being typed, only Escape has an effect.
function shortcutsOf(current, { controls, keys, transport, copies, closeValue, closeWhy, closeHistory, root }) {
  const typing = () => root.activeElement?.matches("input:not([type=range]), select, textarea");
  return (key) => {
    const view = current();
    if (key === "Escape" && copies.isOpen()) return copies.close;
    if (key === "Escape") return view.value ? closeValue : view.why ? closeWhy : view.history ? closeHistory : null;
    if (typing()) return null;
    if (key === " ") return root.activeElement === transport.slider ? transport.playOrPause : null;
    return { "/": controls.focusFilter, "?": keys.open }[key];
  };
}

function browserHead({ act }, helpButton) {
  const name = element("span", { class: "name" });
  const table = selectBox("State table", (chosen) => act("table", chosen));
  const facts = element("span", { class: "facts", role: "status" });
  const notes = element("span", { class: "facts marks-legend" });
  const counts = element("span", { class: "counts push" });
  const node = element("div", { class: "bar head" }, name, table, facts, notes, counts, helpButton);

  function drawWaiting(view) {
    name.textContent = view.name;
    for (const part of [table, facts, notes, counts]) part.hidden = true;
  }

  function draw(view) {
    for (const part of [facts, notes, counts]) part.hidden = false;
    name.textContent = view.name;
    table.hidden = view.tables.length < 2;
    fill(table, view.tables, view.table);
    facts.replaceChildren(...[["rows", number(view.total)], ...view.facts].map(([what, value]) => fact(what, value)));
    facts.setAttribute("aria-live", view.selection.playing || view.following ? "off" : "polite");
    notes.replaceChildren(...legend(view.mark_facts));
    const uncounted = view.counting ? "counting changes…" : "the first epoch captured";
    counts.replaceChildren(...(view.counts ? changes(view.counts) : [element("span", { class: "faint" }, uncounted)]));
  }
  return { node, draw, drawWaiting };
}

function changes({ since, ...counts }) {
  const parts = ["added", "changed", "removed"].flatMap((kind) => [
    changeCount(
      kind,
      number(counts[kind]),
      { title: `${number(counts[kind])} keys ${kind}` },
      element("span", { class: "hidden" }, ` ${kind}`),
    ),
    " ",
  ]);
  return [...parts, element("span", { class: "faint" }, `since epoch ${since}`)];
}
