import { KINDS, element, fill, icon, keep, mark, number } from "./dom.js";
import { plot } from "./plots.js";
import { screen } from "./screen.js";

// The key history view: one key of a state table, a plot for each of its columns, and each of its changes.
export function render({ model, root, style }) {
  let view = null;
  const { act, answered, frame, busy, problem } = screen({ model, root, style }, "screen key-life", (drawn) => { view = drawn; draw(); });

  // Head: which key of which state.
  const name = element("span", { class: "name" });
  const table = element("select", { "aria-label": "State table", onchange: () => act("table", table.value) });
  const fields = element("form", { class: "fields", "aria-label": "Key" });
  fields.addEventListener("submit", (event) => { event.preventDefault(); act("typed", [...fields.querySelectorAll("input")].map((each) => each.value)); });
  const key = element("span", { class: "key" });
  const said = element("span", { class: "facts faint push", role: "status" });
  const head = element("div", { class: "bar head" }, name, table, fields, key, said);
  const told = element("div", { class: "empty" });

  // Plots: a column each; as many as are drawn at once.
  const pool = [];
  const earlier = element("button", { type: "button", "aria-label": "Earlier columns", title: "Earlier columns", onclick: () => act("column", view.plots.start - 1) }, icon("previous"));
  const later = element("button", { type: "button", "aria-label": "Later columns", title: "Later columns", onclick: () => act("column", view.plots.start + view.plots.charts.length) }, icon("next"));
  const which = element("span", { class: "faint" });
  const columns = element("div", { class: "bar" }, which, element("span", { class: "group", role: "group", "aria-label": "Columns" }, earlier, later));
  const notes = element("div", { class: "notes faint" });
  const place = element("div", { class: "multiples" });
  const plots = element("section", { class: "plots", "aria-label": "Values over the epochs" }, columns, place, notes);

  // Changes: newest first.
  const span = element("span", { class: "pager faint" });
  const back = element("button", { type: "button", "aria-label": "Newer changes", title: "Newer changes", onclick: () => act("page", page() - 1) }, icon("previous"));
  const on = element("button", { type: "button", "aria-label": "Older changes", title: "Older changes", onclick: () => act("page", page() + 1) }, icon("next"));
  const size = element("select", { "aria-label": "Changes per page", onchange: () => act("size", Number(size.value)) },
    ...[10, 25, 50, 100].map((rows) => element("option", { value: rows }, `${rows} rows`)));
  const page = () => Math.floor(view.page.offset / view.size);
  const controls = element("div", { class: "bar" }, element("strong", {}, "Changes"), element("span", { class: "push" }), span,
    element("span", { class: "group", role: "group", "aria-label": "Pages" }, back, on), size);
  const header = element("thead");
  const body = element("tbody");
  const grid = element("table", {}, header, body);
  const scroll = element("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Changes of this key" }, grid);
  const changes = element("section", { class: "changes", "aria-label": "Changes" }, controls, scroll);
  frame.append(head, busy, problem, told, plots, changes);

  function drawHead() {
    frame.setAttribute("aria-label", `Key history in ${view.name}`);
    name.textContent = view.name;
    table.hidden = view.tables.length < 2;
    fill(table, view.tables, view.table);
    fields.hidden = !view.typable;
    key.hidden = view.typable;
    key.textContent = view.key;
    drawFields();
    const { rows, total } = view.page;
    const newest = view.page.offset === 0 && rows[0];
    said.textContent = total ? `${number(total)} change${total === 1 ? "" : "s"}${newest && newest.mark === "−" ? " · not there now" : ""}` : "";
  }

  function drawFields() {
    const names = view.fields.map((each) => each.name).join("\n");
    if (fields.dataset.names !== names) {
      fields.dataset.names = names;
      fields.replaceChildren(...view.fields.map((each) => element("label", {}, element("span", { class: "faint" }, each.name), element("input", { type: "text", size: 10, autocomplete: "off", spellcheck: "false" }))),
        element("button", { type: "submit" }, "Show"));
    }
    if (!answered() || fields.contains(root.activeElement)) return; // what is being typed stays
    for (const [i, input] of [...fields.querySelectorAll("input")].entries()) input.value = view.fields[i].text;
  }

  function drawPlots() {
    const { charts, start, total, notes: left } = view.plots;
    plots.hidden = charts.length === 0 && left.length === 0;
    columns.hidden = total <= charts.length;
    which.textContent = `Columns ${start + 1}–${start + charts.length} of ${number(total)}`;
    earlier.disabled = start === 0;
    later.disabled = start + charts.length >= total;
    notes.replaceChildren(...left.map((text) => element("div", {}, text)));
    while (pool.length < charts.length) {
      const drawn = plot(model, (what, value) => value && value.row && act("change", { row: [...value.row] }));
      const title = element("strong", {});
      const rest = element("span", { class: "faint" });
      const node = element("div", { class: "multiple" }, element("div", { class: "caption" }, title, rest), drawn.figure);
      pool.push({ node, drawn, title, rest });
      place.append(node);
    }
    for (const [i, { node, drawn, title, rest }] of pool.entries()) {
      node.hidden = i >= charts.length;
      if (node.hidden) continue;
      const column = view.columns[start + i];
      title.textContent = column;
      rest.textContent = charts[i].label.slice(column.length + 1);
      drawn.show(charts[i]);
    }
  }

  function drawChanges() {
    const { rows, offset, total, now } = view.page;
    changes.hidden = total === 0;
    span.textContent = rows.length ? `${number(offset + 1)}–${number(offset + rows.length)} of ${number(total)}, newest first` : "";
    back.disabled = offset === 0;
    on.disabled = offset + rows.length >= total;
    size.value = view.size;
    grid.setAttribute("aria-label", `Changes of ${view.key}`);
    const right = view.columns.map((_, i) => rows.some((row) => row.cells[i] && row.cells[i].kind === "number"));
    keep(scroll, () => {
      header.replaceChildren(element("tr", {}, element("th", { class: "mark", scope: "col" }, element("span", { class: "hidden" }, "Kind")),
        ...["epoch", "committed", "change", "cause"].map((each) => element("th", { scope: "col" }, each)),
        ...view.columns.map((each, i) => element("th", { scope: "col", class: right[i] ? "number" : "" }, element("span", { class: "title" }, each)))));
      body.replaceChildren(...rows.map((row, i) => line(row, i, right, i === now)));
    });
  }

  function line(row, i, right, now) {
    return element("tr", { class: `${KINDS[row.mark] || ""} ${now ? "now" : ""}`, "aria-current": now ? "true" : null },
      mark(row.mark),
      element("td", {}, element("button", { type: "button", class: "link", title: "Look at this epoch, here and in the views that are linked", onclick: () => act("epoch", i) }, `epoch ${row.epoch}`)),
      element("td", { class: "faint" }, row.committed), element("td", {}, row.said), element("td", {}, row.cause),
      ...(row.cells.length ? row.cells.map((cell, c) => value(cell, right[c], row.differ.includes(c)))
        : view.columns.length ? [element("td", { class: "null", colspan: view.columns.length }, "not there")] : []));
  }

  function value(cell, numeric, differs) {
    const classes = [numeric && "number", cell.kind === "null" && "null", differs && "differs"].filter(Boolean).join(" ");
    return element("td", { class: classes, title: cell.whole }, element("span", { class: "text" }, cell.text));
  }

  function draw() {
    drawHead();
    told.hidden = !view.told;
    told.replaceChildren(view.told, view.like.length ? element("div", {}, `Keys like it: ${view.like.join("; ")}.`) : "");
    drawPlots();
    drawChanges();
  }
}
