import { element, number } from "./dom.js";
import { plot } from "./plots.js";
import { screen } from "./screen.js";

// Seconds as people say them; spans.py says them in the same way.
function span(seconds) {
  if (seconds < 0) return `−${span(-seconds)}`;
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  const minutes = Math.floor(whole / 60);
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${number(Math.floor(hours / 24))} days`;
}

// The timeline: every epoch of a query on one axis, and the place to choose one or an interval of them.
export function render({ model, root, style }) {
  const plots = new Map();
  let view = null;
  let points = []; // what is drawn: one object a point
  let pointed = null; // the epoch under the pointer
  let dragged = null; // where an interval began and where the pointer is
  const { act, answered, frame, busy, problem } = screen({ model, root, style }, "timeline screen", (drawn) => { view = drawn; draw(); });

  // Head: which query, which of its epochs.
  const name = element("span", { class: "name" });
  const facts = element("span", { class: "facts" });
  const windows = element("span", { class: "group push", role: "group", "aria-label": "Epochs shown" });
  const head = element("div", { class: "bar head" }, name, facts, windows);

  // Choice: what is selected, by hand or in numbers.
  const chosen = element("strong", { class: "chosen", role: "status" });
  const told = element("span", { class: "faint" });
  const from = element("input", { type: "number", step: 1, "aria-label": "From epoch" });
  const to = element("input", { type: "number", step: 1, "aria-label": "To epoch" });
  const typed = () => {
    const ends = [from, to].map((each) => each.value.trim()).filter(Boolean).map(Number).filter(Number.isInteger);
    if (ends.length === 2) act("between", ends);
    else if (ends.length === 1) act("epoch", ends[0]);
    else act("clear");
  };
  for (const each of [from, to]) {
    each.addEventListener("change", typed);
    each.addEventListener("keydown", (event) => { if (event.key === "Enter") typed(); }); // JupyterLab keeps Enter from being a change
  }
  const clear = element("button", { type: "button", onclick: () => act("clear") }, "Clear");
  const choice = element("div", { class: "bar transport" }, chosen, told, element("span", { class: "ends push" },
    element("span", { class: "faint", "aria-hidden": "true" }, "epochs"), from, element("span", { "aria-hidden": "true" }, "–"), to, clear));

  // Plots: one below the other, and above them all what is pointed at and chosen.
  const pointedAt = element("div", { class: "pointed" });
  const stack = element("div", { class: "stack" });
  const band = element("div", { class: "band", hidden: true });
  const rule = element("div", { class: "rule", hidden: true });
  const surface = element("div", { class: "layer surface", "aria-hidden": "true" }, band, rule);
  const measures = element("div", { class: "measures" });
  stack.append(measures, surface);
  const caption = element("p", { class: "caption faint" });
  const legend = element("span", { class: "legend" });

  // Table: the same numbers to be read.
  const unfold = element("button", { type: "button", "aria-expanded": "false", onclick: () => act("table", !view.table) }, "Show as table");
  const table = element("table", { "aria-label": "Epochs" });
  const scroll = element("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Epochs as a table" }, table);
  const pager = element("span", { class: "pager faint" });
  const newer = element("button", { type: "button", onclick: () => act("page", view.table.page - 1) }, "Newer");
  const older = element("button", { type: "button", onclick: () => act("page", view.table.page + 1) }, "Older");
  const foot = element("div", { class: "bar" }, legend, element("span", { class: "push" }), pager, newer, older, unfold);
  const empty = element("div", { class: "empty", hidden: true }, "No epoch is captured yet. The first will show here.");
  frame.append(head, busy, problem, choice, pointedAt, stack, caption, foot, scroll, empty);

  const place = (epoch) => Math.max(0, Math.min(1, (epoch - view.axis.from) / (view.axis.to - view.axis.from)));
  const holding = (epoch) => points.find((point) => point.first <= epoch && epoch <= point.last);

  // The point nearest to where the pointer is.
  function under(event) {
    const box = surface.getBoundingClientRect();
    const epoch = view.axis.from + ((event.clientX - box.left) / box.width) * (view.axis.to - view.axis.from);
    let low = 0;
    let high = points.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (points[middle].last + 0.5 < epoch) low = middle + 1;
      else high = middle;
    }
    const before = points[low - 1];
    return before && epoch - before.last < points[low].first - epoch ? before : points[low];
  }

  surface.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    const point = under(event);
    dragged = { x: event.clientX, start: point, now: point, moved: false };
    surface.setPointerCapture(event.pointerId);
  });
  surface.addEventListener("pointermove", (event) => {
    const point = under(event);
    pointed = point.last;
    if (dragged) {
      dragged.now = point;
      dragged.moved ||= Math.abs(event.clientX - dragged.x) > 4;
    }
    drawChoice();
    drawPointed();
  });
  surface.addEventListener("pointerup", (event) => {
    if (!dragged) return;
    const { start, moved } = dragged;
    const now = under(event);
    dragged = null;
    if (moved) act("between", [Math.min(start.first, now.first), Math.max(start.last, now.last)]);
    else act("epoch", now.last);
  });
  surface.addEventListener("pointercancel", () => { dragged = null; drawChoice(); });
  surface.addEventListener("pointerleave", () => { pointed = null; drawPointed(); });

  function drawHead() {
    name.textContent = view.name;
    frame.setAttribute("aria-label", `Timeline of ${view.name}`);
    facts.replaceChildren(...view.facts.map((fact) => element("span", { class: "fact" }, fact)));
    const offered = view.window.offered;
    windows.hidden = offered.length < 2;
    const current = offered.includes(view.window.chosen) ? view.window.chosen : null;
    const focused = [...windows.children].indexOf(root.activeElement);
    windows.replaceChildren(...offered.map((size) => element("button", { type: "button", "aria-pressed": String(size === current), onclick: () => act("window", size) },
      size === null ? "All" : `Last ${size}`)));
    windows.children[focused]?.focus();
  }

  function drawChoice() {
    const selected = view.selected;
    chosen.textContent = selected ? selected.text : "no epoch selected";
    chosen.classList.toggle("faint", !selected);
    told.textContent = selected ? [...selected.told, selected.outside ? "outside the epochs shown" : ""].filter(Boolean).join(" · ") : "click one, or drag over several";
    clear.disabled = !selected;
    for (const [input, value] of [[from, selected && selected.from], [to, selected && selected.to]]) {
      [input.min, input.max] = view.epochs;
      if (answered() && root.activeElement !== input) input.value = value ?? "";
    }
    const ends = dragged && dragged.moved
      ? [Math.min(dragged.start.first, dragged.now.first), Math.max(dragged.start.last, dragged.now.last)]
      : selected && !selected.outside ? [selected.from, selected.to] : null;
    band.hidden = !ends;
    if (ends) spread(band, ends);
  }

  // Put a node over some epochs.
  function spread(node, [first, last]) {
    node.style.left = `${100 * place(first - 0.5)}%`;
    node.style.width = `${100 * (place(last + 0.5) - place(first - 0.5))}%`;
  }

  function drawPointed() {
    const wanted = pointed ?? (view.selected && !view.selected.outside ? view.selected.to : null);
    const newest = points.findLast((point) => point.captured) || points.at(-1);
    const point = (wanted !== null && holding(wanted)) || newest;
    rule.hidden = pointed === null;
    if (pointed !== null) rule.style.left = `${100 * place((point.first + point.last) / 2)}%`;
    const said = [point.first === point.last ? `epoch ${point.last}` : `epochs ${point.first}–${point.last}`];
    if (!point.captured) said.push("a gap: Spark had purged it before it was captured");
    else {
      if (point.gaps) said.push(`${number(point.gaps)} of them gaps`);
      if (point.committed) said.push(`committed ${point.committed}`);
      if (point.run) said.push(`run ${point.run}`);
    }
    pointedAt.replaceChildren(element("strong", {}, said[0]), element("span", { class: "faint" }, said.slice(1).join(" · ")));
    for (const each of view.measures) {
      const value = point[each.name];
      plots.get(each.name).value.textContent = value === null ? "–" : each.unit === "rows" ? number(value) : span(value);
    }
  }

  function drawPlots() {
    const columns = view.points;
    points = columns.first.map((_, i) => Object.fromEntries(Object.entries(columns).map(([field, values]) => [field, values[i]])));
    const rows = [...points.map((point) => ({ kind: "point", ...point })), ...view.marks];
    const wanted = view.measures.map((each) => each.name);
    if (wanted.join() !== [...plots.keys()].join()) {
      plots.clear();
      for (const each of wanted) plots.set(each, { title: element("span"), value: element("span", { class: "value" }), drawn: plot(model), hatches: element("div", { class: "layer hatches", "aria-hidden": "true" }) });
      measures.replaceChildren(...[...plots.values()].map(({ title, value, drawn, hatches }) =>
        element("div", { class: "measure" }, element("div", { class: "title" }, title, value), drawn.figure, hatches)));
    }
    view.measures.forEach((each, i) => {
      const { title, drawn, hatches } = plots.get(each.name);
      title.replaceChildren(each.title, element("small", { class: "faint" }, each.fold));
      hatches.replaceChildren(...view.gaps.map((run) => { const node = element("i"); spread(node, run); return node; }));
      title.title = each.meaning;
      drawn.show({ ...view.charts[i], rows });
    });
    frame.style.setProperty("--axis", `${view.axis.labels}px`);
  }

  function drawTable() {
    const open = Boolean(view.table);
    unfold.textContent = open ? "Hide the table" : "Show as table";
    unfold.setAttribute("aria-expanded", String(open));
    for (const each of [scroll, pager, newer, older]) each.hidden = !open;
    if (!open) return;
    const { rows, offset, total, titles } = view.table;
    pager.textContent = `${number(offset + 1)}–${number(offset + rows.length)} of ${number(total)} epochs, newest first`;
    newer.disabled = offset === 0;
    older.disabled = offset + rows.length >= total;
    const heads = ["Epoch", "Committed", ...titles, "Run"];
    table.replaceChildren(
      element("thead", {}, element("tr", {}, ...heads.map((each, i) => element("th", { scope: "col", class: i > 1 && i < heads.length - 1 ? "number" : "" }, each)))),
      element("tbody", {}, ...rows.map((row) => element("tr", { class: view.selected && row.epoch >= view.selected.from && row.epoch <= view.selected.to ? "chosen" : "" },
        element("th", { scope: "row" }, row.epoch),
        element("td", { class: row.gap ? "null" : "" }, row.gap ? "a gap: not captured" : row.committed),
        ...row.cells.map((cell) => element("td", { class: "number" }, cell)), element("td", { class: "faint" }, row.run)))));
  }

  function drawCaption() {
    caption.textContent = view.caption.join(" ");
    const signs = { gaps: "gap", restarts: "restart", forks: "fork" };
    legend.replaceChildren(...Object.keys(signs).filter((each) => view.legend[each]).map((each) =>
      element("span", { class: `sign ${each}` }, element("i", { "aria-hidden": "true" }), signs[each])));
  }

  function draw() {
    for (const part of [facts, choice, pointedAt, stack, caption, foot]) part.hidden = view.waiting;
    empty.hidden = !view.waiting;
    if (view.waiting) {
      name.textContent = view.name;
      windows.hidden = scroll.hidden = true;
      return;
    }
    drawHead();
    drawPlots();
    drawChoice();
    drawPointed();
    drawTable();
    drawCaption();
  }
}
