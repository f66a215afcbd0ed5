import {
  button,
  followButton,
  group,
  iconButton,
  onEnter,
  pager,
  pushRight,
  searchBox,
  selectBox,
} from "./controls.js";
import { differences } from "./diff_rows.js";
import { element, fact, fill } from "./dom.js";
import { at, count, positionOf } from "./epochs.js";
import { plot } from "./plots.js";
import { screen } from "./screen.js";
import { note, SIGNS } from "./tables.js";
import { whyPanel } from "./why.js";
import { number } from "./words.js";

const KINDS_OF_CHANGE = ["", "added", "changed", "removed"];

// The diff view: two epochs of a state table, the keys that differ, and those that moved the most.
export function render({ model, root, style }) {
  let view = null;
  const { act, answered, frame, busy, problem } = screen({ model, root, style }, "screen diffs", (drawn) => {
    view = drawn;
    draw();
  });
  const page = { act, answered, root };
  const head = diffHead(page);
  const sides = twoSides(page);
  const controls = differenceControls(page);
  const { scroll, empty, draw: drawRows } = differences(act);
  const why = whyPanel(page);
  const movers = largestMovers(page, model);
  const naming = note();
  const rows = [controls.node, naming.node, scroll, empty];
  frame.append(head.node, sides.node, busy, problem, ...rows, ...why.nodes, movers.node);

  function draw() {
    const waiting = view.sides.length === 0;
    for (const node of [sides.node, controls.node, scroll, movers.node]) node.hidden = waiting;
    head.draw(view);
    if (waiting) {
      empty.hidden = false;
      empty.textContent = "No epoch has been captured yet. Differences will appear here from the first one on.";
      return;
    }
    frame.setAttribute("aria-label", `Differences in ${view.name}`);
    sides.draw(view);
    controls.draw(view);
    naming.draw(view.naming);
    drawRows(view);
    why.draw(view);
    movers.draw(view);
  }
}

function diffHead({ act }) {
  const name = element("span", { class: "name" });
  const table = selectBox("State table", (chosen) => act("table", chosen));
  const epochs = element("span", { class: "facts faint", role: "status" });
  const node = element("div", { class: "bar head" }, name, table, epochs);

  function draw(view) {
    const [from, to] = view.sides;
    name.textContent = view.name;
    table.hidden = !from || view.tables.length < 2;
    epochs.hidden = !from;
    if (!from) return;
    fill(table, view.tables, view.table);
    const same = from.epoch === to.epoch && !view.others;
    epochs.textContent = same ? `epoch ${from.epoch} with itself` : `epoch ${from.epoch} → ${to.epoch}`;
    epochs.setAttribute("aria-live", view.selection.following ? "off" : "polite");
  }
  return { node, draw };
}

// Which two epochs are compared.
function twoSides(page) {
  const { act } = page;
  const from = side(page, "a", "From epoch");
  const to = side(page, "b", "To epoch");
  const swap = button({ title: "Swap the two epochs", onclick: () => act("swap") }, "⇄ Swap");
  const previous = button(
    { title: "Compare with the epoch captured before it", onclick: () => act("previous") },
    "Previous",
  );
  const follow = followButton("Compare with each new epoch as it is captured", () => act("follow"));
  const node = element("div", { class: "sides" }, from.node, swap, to.node);
  from.bar.append(previous);
  to.bar.append(follow);

  function draw(view) {
    from.draw(view.captured, view.sides[0]);
    to.draw(view.others || view.captured, view.sides[1]); // another branch has epochs of its own
    follow.setAttribute("aria-pressed", view.selection.following);
    swap.hidden = previous.hidden = Boolean(view.others);
    previous.disabled = view.sides[1].epoch === at(view.captured, 0);
  }
  return { node, draw };
}

// One of the two epochs: a field to type it, buttons for the epochs beside it, and facts about it.
function side({ act, answered }, action, label) {
  let runs = [];
  let current = null;
  let typed = false; // what is being typed stays until it is sent
  const place = () => positionOf(runs, current.epoch);
  const step = (by) => act(action, at(runs, place() + by));
  function go() {
    if (!typed) return;
    typed = false;
    if (input.value === "") draw(runs, current);
    else act(action, Number(input.value));
  }
  const input = element("input", {
    type: "number",
    step: 1,
    "aria-label": label,
    onchange: go,
    oninput: () => {
      typed = true;
    },
  });
  onEnter(input, go);
  const previous = iconButton("previous", `${label}: the previous one`, () => step(-1), "Previous epoch");
  const next = iconButton("next", `${label}: the next one`, () => step(1), "Next epoch");
  const facts = element("div", { class: "facts" });
  const caption = element("span", { class: "label faint" }, label);
  const bar = element("div", { class: "pick" }, caption, group(label, previous, input, next));
  const node = element("div", { class: "side" }, bar, facts);

  function draw(captured, drawn) {
    runs = captured;
    current = drawn;
    const last = count(runs) - 1;
    input.min = at(runs, 0);
    input.max = at(runs, last);
    if (answered() && !typed) input.value = current.epoch;
    previous.disabled = place() === 0;
    next.disabled = place() === last;
    facts.replaceChildren(...sideFacts(current));
  }
  return { node, bar, draw };
}

function sideFacts({ epoch, rows, committed, watermark, asked, query }) {
  const facts = { query, rows: number(rows), committed, watermark };
  const known = Object.entries(facts).filter(([, value]) => value);
  const note = `Epoch ${asked} was not captured: this is epoch ${epoch}.`;
  return [
    ...known.map(([name, value]) => fact(name, value)),
    asked === null ? "" : element("span", { class: "note" }, note),
  ];
}

// Which of the keys that differ are shown.
function differenceControls({ act, answered, root }) {
  let view = null;
  const kinds = KINDS_OF_CHANGE.map((kind) => button({ onclick: () => act("change", kind || null) }));
  const text = searchBox({ placeholder: "key contains…", "aria-label": "Text to find in the key" }, (sought) =>
    act("text", sought),
  );
  const pageNumber = () => Math.floor(view.page.offset / view.selection.size);
  const pages = pager({
    turn: (by) => act("page", pageNumber() + by),
    resize: (rows) => act("size", rows),
  });
  const kindGroup = group("Kinds of change", ...kinds);
  kindGroup.classList.add("kinds");
  const node = element("div", { class: "bar controls" }, kindGroup, text, pushRight(), ...pages.parts);

  function drawKinds({ counts, selection }) {
    const total = Object.values(counts).reduce((sum, keys) => sum + keys, 0);
    for (const [i, kind] of KINDS_OF_CHANGE.entries()) {
      kinds[i].setAttribute("aria-pressed", (selection.change || "") === kind);
      kinds[i].className = `count ${kind && counts[kind] ? kind : "none"}`;
      kinds[i].textContent = kind ? `${SIGNS[kind]}${number(counts[kind])} ${kind}` : `All ${number(total)}`;
    }
  }

  function draw(drawn) {
    view = drawn;
    drawKinds(view);
    if (answered() && root.activeElement !== text) text.value = view.selection.text;
    const { offset, matching, rows } = view.page;
    pages.draw({ offset, rows: rows.length, total: matching }, view.selection.size);
  }
  return { node, draw };
}

// The keys whose value in one column changed the most.
function largestMovers({ act }, model) {
  let view = null;
  const column = selectBox("Column whose largest movers are drawn", (chosen) => act("column", chosen));
  const sortByMove = () => act("sort", { column: view.movers.column, size: true, relative: false, descending: true });
  const sort = button(
    { title: "Sort the keys below by how far this column moved", onclick: sortByMove },
    "Sort keys by it",
  );
  const none = element("div", { class: "faint none" });
  const bars = plot(model, (_, value) => value?.row && act("mover", { row: [...value.row] }));
  const common = element("span", { class: "faint" });
  const bar = element("div", { class: "bar" }, element("strong", {}, "Largest movers of"), column, common, sort);
  const node = element("section", { class: "movers", "aria-label": "Largest movers" }, bar, none, bars.figure);

  function draw(drawn) {
    view = drawn;
    const movers = view.movers;
    node.hidden = !movers || !Object.values(view.counts).some(Boolean);
    if (node.hidden) return;
    fill(column, movers.columns, movers.column);
    bars.figure.hidden = sort.hidden = !movers.chart;
    common.textContent = movers.common;
    common.hidden = !movers.common;
    none.hidden = Boolean(movers.chart);
    none.textContent = `No key that is present at both epochs has a different ${movers.column}.`;
    if (movers.chart) bars.show(movers.chart);
  }
  return { node, draw };
}
