import { differences } from "./differences.js";
import { element, fill, icon, number } from "./dom.js";
import { at, count, positionOf } from "./epochs.js";
import { plot } from "./plots.js";
import { screen } from "./screen.js";

const SIGNS = { added: "+", changed: "~", removed: "−" };

// The diff view: two epochs of a state table, the keys that differ, and those that moved the most.
export function render({ model, root, style }) {
  let view = null;
  const { act, answered, frame, busy, problem } = screen({ model, root, style }, "screen diffs", (drawn) => { view = drawn; draw(); });

  // Head: which state of which query, and how much differs.
  const name = element("span", { class: "name" });
  const table = element("select", { "aria-label": "State table", onchange: () => act("table", table.value) });
  const said = element("span", { class: "facts faint", role: "status" });
  const head = element("div", { class: "bar head" }, name, table, said);

  // Two sides: which epochs are compared.
  const a = side("a", "From epoch");
  const b = side("b", "To epoch");
  const swap = element("button", { type: "button", title: "Swap the two epochs", onclick: () => act("swap") }, "⇄ Swap");
  const before = element("button", { type: "button", title: "Compare with the epoch captured before", onclick: () => act("previous") }, "Previous");
  const dot = element("i", { "aria-hidden": "true" });
  const follow = element("button", { type: "button", class: "follow", title: "Compare with each new epoch as it is captured", onclick: () => act("follow") }, dot, "Follow live");
  const sides = element("div", { class: "sides" }, a.node, swap, b.node);
  a.bar.append(before);
  b.bar.append(follow);

  function side(which, label) {
    const runs = () => (which === "b" && view.others) || view.captured; // two branches have epochs of their own
    const place = () => positionOf(runs(), view.sides[which === "a" ? 0 : 1].epoch);
    const step = (by) => act(which, at(runs(), place() + by));
    let typed = false; // what is being typed stays until it is meant
    function go() {
      if (!typed) return;
      typed = false;
      input.value === "" ? draw() : act(which, Number(input.value));
    }
    const entered = (event) => { if (event.key === "Enter") go(); }; // JupyterLab keeps Enter from being a change
    const input = element("input", { type: "number", step: 1, "aria-label": label, onchange: go, onkeydown: entered, oninput: () => { typed = true; } });
    const back = element("button", { type: "button", "aria-label": `${label}: the one before`, title: "The epoch before", onclick: () => step(-1) }, icon("previous"));
    const on = element("button", { type: "button", "aria-label": `${label}: the next`, title: "The next epoch", onclick: () => step(1) }, icon("next"));
    const facts = element("div", { class: "facts" });
    const bar = element("div", { class: "pick" }, element("span", { class: "label faint" }, label),
      element("span", { class: "group", role: "group", "aria-label": label }, back, input, on));
    const node = element("div", { class: "side" }, bar, facts);
    function show({ epoch, rows, committed, watermark, asked, query }) {
      const end = count(runs()) - 1;
      input.min = at(runs(), 0);
      input.max = at(runs(), end);
      if (answered() && !typed) input.value = epoch;
      back.disabled = place() === 0;
      on.disabled = place() === end;
      const known = [["query", query], ["rows", number(rows)], ["committed", committed], ["watermark", watermark]].filter(([, value]) => value);
      facts.replaceChildren(...known.map(([what, value]) => element("span", { class: "fact" }, element("b", {}, what), ` ${value}`)),
        ...(asked === null ? [] : [element("span", { class: "note" }, `Epoch ${asked} was not captured: this is epoch ${epoch}.`)]));
    }
    return { node, bar, show };
  }

  // Movers: which keys moved the most.
  const mover = element("select", { "aria-label": "Column whose largest movers are drawn", onchange: () => act("column", mover.value) });
  const sort = element("button", { type: "button", title: "Sort the keys below by how far this column moved", onclick: () => act("sort", { column: view.movers.column, size: true, descending: true }) }, "Sort keys by it");
  const still = element("div", { class: "faint none" });
  const bars = plot(model, (what, value) => value && value.row && act("mover", { row: [...value.row] }));
  const movers = element("section", { class: "movers", "aria-label": "Largest movers" },
    element("div", { class: "bar" }, element("strong", {}, "Largest movers of"), mover, sort), still, bars.figure);

  // Rows: which of the keys that differ.
  const kinds = ["", "added", "changed", "removed"].map((kind) => element("button", { type: "button", onclick: () => act("change", kind || null) }));
  const text = element("input", { type: "search", placeholder: "key contains…", "aria-label": "Text to find in the key" });
  let typing;
  text.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(() => act("text", text.value), 250); });
  const span = element("span", { class: "pager faint" });
  const back = element("button", { type: "button", "aria-label": "Previous page", title: "Previous page", onclick: () => act("page", page() - 1) }, icon("previous"));
  const on = element("button", { type: "button", "aria-label": "Next page", title: "Next page", onclick: () => act("page", page() + 1) }, icon("next"));
  const size = element("select", { "aria-label": "Rows per page", onchange: () => act("size", Number(size.value)) },
    ...[10, 25, 50, 100].map((rows) => element("option", { value: rows }, `${rows} rows`)));
  const page = () => Math.floor(view.page.offset / view.selection.size);
  const controls = element("div", { class: "bar controls" },
    element("span", { class: "group kinds", role: "group", "aria-label": "Kinds of change" }, ...kinds), text,
    element("span", { class: "push" }), span, element("span", { class: "group", role: "group", "aria-label": "Pages" }, back, on), size);
  const { scroll, empty, draw: drawRows } = differences(act);
  frame.append(head, sides, busy, problem, controls, scroll, empty, movers);

  function drawHead() {
    frame.setAttribute("aria-label", `Differences in ${view.name}`);
    table.hidden = view.tables.length < 2;
    fill(table, view.tables, view.table);
    const [from, to] = view.sides;
    said.textContent = from.epoch === to.epoch && !view.others ? `epoch ${from.epoch} with itself` : `epoch ${from.epoch} → ${to.epoch}`;
    said.setAttribute("aria-live", view.selection.following ? "off" : "polite");
    a.show(from);
    b.show(to);
    follow.setAttribute("aria-pressed", view.selection.following);
    swap.hidden = before.hidden = Boolean(view.others);
    before.disabled = to.epoch === at(view.captured, 0);
  }

  function drawControls() {
    const { change, size: rows } = view.selection;
    const total = Object.values(view.counts).reduce((sum, each) => sum + each, 0);
    for (const [i, kind] of ["", "added", "changed", "removed"].entries()) {
      kinds[i].setAttribute("aria-pressed", (change || "") === kind);
      kinds[i].className = `count ${kind && view.counts[kind] ? kind : "none"}`;
      kinds[i].replaceChildren(kind ? `${SIGNS[kind]}${number(view.counts[kind])} ${kind}` : `All ${number(total)}`);
    }
    if (answered() && root.activeElement !== text) text.value = view.selection.text;
    const { offset, matching, rows: shown } = view.page;
    span.textContent = shown.length ? `${number(offset + 1)}–${number(offset + shown.length)} of ${number(matching)}` : "";
    back.disabled = offset === 0;
    on.disabled = offset + shown.length >= matching;
    size.value = rows;
  }

  function drawMovers() {
    const found = view.movers;
    movers.hidden = !found || !Object.values(view.counts).some(Boolean);
    if (movers.hidden) return;
    fill(mover, found.columns, found.column);
    bars.figure.hidden = sort.hidden = !found.chart;
    still.hidden = Boolean(found.chart);
    still.textContent = `No key that is there at both epochs has another ${found.column}.`;
    if (found.chart) bars.show(found.chart);
  }

  function draw() {
    const waiting = view.sides.length === 0;
    for (const part of [sides, controls, scroll, movers, said]) part.hidden = waiting;
    name.textContent = view.name;
    if (waiting) {
      table.hidden = true;
      empty.hidden = false;
      empty.textContent = "No epoch is captured yet. What differs shows here from the first on.";
      return;
    }
    drawHead();
    drawControls();
    drawRows(view);
    drawMovers();
  }
}
