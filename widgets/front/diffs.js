import { KINDS, element, fill, icon, keep, mark, number } from "./dom.js";
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
    const place = () => positionOf(view.captured, view.sides[which === "a" ? 0 : 1].epoch);
    const step = (by) => act(which, at(view.captured, place() + by));
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
    function show({ epoch, rows, committed, watermark, asked }) {
      const end = count(view.captured) - 1;
      input.min = at(view.captured, 0);
      input.max = at(view.captured, end);
      if (answered() && !typed) input.value = epoch;
      back.disabled = place() === 0;
      on.disabled = place() === end;
      const known = [["rows", number(rows)], ["committed", committed], ["watermark", watermark]].filter(([, value]) => value);
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
  const header = element("thead");
  const body = element("tbody");
  const grid = element("table", {}, header, body);
  const scroll = element("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Keys that differ" }, grid);
  const empty = element("div", { class: "empty" });
  frame.append(head, sides, busy, problem, controls, scroll, empty, movers);

  function drawHead() {
    frame.setAttribute("aria-label", `Differences in ${view.name}`);
    table.hidden = view.tables.length < 2;
    fill(table, view.tables, view.table);
    const [from, to] = view.sides;
    said.textContent = from.epoch === to.epoch ? `epoch ${from.epoch} with itself` : `epoch ${from.epoch} → ${to.epoch}`;
    said.setAttribute("aria-live", view.selection.following ? "off" : "polite");
    a.show(from);
    b.show(to);
    follow.setAttribute("aria-pressed", view.selection.following);
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

  function drawRows() {
    const keys = view.columns.filter((each) => each.key);
    const values = view.columns.filter((each) => !each.key);
    const rows = view.page.rows;
    const right = {
      keys: keys.map((_, i) => rows.some((row) => row.keys[i].kind === "number")),
      values: values.map((_, i) => rows.some((row) => row.values[i].now.kind === "number")),
    };
    const [from, to] = view.sides;
    grid.setAttribute("aria-label", `${view.table}: what differs from epoch ${from.epoch} to epoch ${to.epoch}`);
    grid.setAttribute("aria-rowcount", view.page.matching);
    keep(scroll, () => {
      header.replaceChildren(element("tr", {}, element("th", { class: "mark", scope: "col" }, element("span", { class: "hidden" }, "Change")),
        ...keys.map((each, i) => heading(each, right.keys[i])), ...values.map((each, i) => heading(each, right.values[i])),
        element("th", { scope: "col" }, "cause"), element("th", { scope: "col" }, "changed at")));
      body.replaceChildren(...rows.map((row, i) => line(row, i, right)));
    });
    scroll.hidden = rows.length === 0;
    empty.hidden = rows.length > 0;
    empty.textContent = view.selection.text ? "No key that differs contains that text."
      : from.epoch === to.epoch ? "An epoch does not differ from itself. Choose another." : "No key differs in this way between the two epochs.";
  }

  // A heading sorts by value, up and down; where values can be subtracted, first by how far they moved.
  function heading({ name: title, key, moves }, numeric) {
    const { order_by, by_size, descending } = view.selection;
    const sorted = order_by === title;
    const orders = [...(moves ? [[true, true]] : []), [false, false], [false, true]];
    const now = sorted ? orders.findIndex(([sized, down]) => sized === by_size && down === descending) : -1;
    const next = orders[now + 1];
    const way = sorted ? `${by_size ? "±" : ""}${descending ? "▼" : "▲"}` : "";
    const told = next ? `Sort by ${title}${next[0] ? ": the largest change first" : next[1] ? ", descending" : ""}` : `Sorted by ${title}; click for the order of the keys`;
    return element("th", { scope: "col", class: numeric ? "number" : "", "aria-sort": sorted ? (descending ? "descending" : "ascending") : "none" },
      element("button", { type: "button", title: told, onclick: () => act("sort", next ? { column: title, size: next[0], descending: next[1] } : { column: null }) },
        element("span", { class: "title" }, title), key ? element("small", {}, "key") : "", element("span", { class: "way", "aria-hidden": "true" }, way)));
  }

  function line(row, i, right) {
    const choose = () => act("key", i);
    const keys = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); } };
    const chosen = view.page.chosen === i;
    return element("tr", { class: `${KINDS[row.mark] || ""} ${chosen ? "chosen" : ""}`, "aria-current": chosen ? "true" : null, tabindex: 0,
      title: "Show this key in the views that are linked", onclick: choose, onkeydown: keys },
      mark(row.mark), ...row.keys.map((cell, c) => shown(cell, right.keys[c])), ...row.values.map((each, c) => value(each, right.values[c], row.mark === "~")),
      element("td", {}, row.cause), element("td", {}, row.epochs));
  }

  function shown(cell, numeric, more = "") {
    return element("td", { class: `${numeric ? "number" : ""} ${cell.kind === "null" ? "null" : ""} ${more}`, title: cell.whole }, element("span", { class: "text" }, cell.text));
  }

  function value({ now, was, moved }, numeric, changed) {
    if (!was) return shown(now, numeric, changed ? "quiet" : "");
    return element("td", { class: `differs ${numeric ? "number" : ""}`, title: `was ${was.whole || was.text}, is ${now.whole || now.text}` },
      element("span", { class: "was" }, was.text), element("span", { class: "arrow", "aria-hidden": "true" }, " → "), element("span", { class: "hidden" }, " became "),
      element("span", { class: "text" }, now.text), moved ? element("small", { class: moved[0] === "−" ? "down" : "up" }, ` ${moved}`) : "");
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
    drawRows();
    drawMovers();
  }
}
