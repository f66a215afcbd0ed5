import { KINDS, element, keep, mark, number } from "./dom.js";

// The keys that differ between two epochs, as a table: the diff view's, and the debugger's of its last step.
export function differences(act) {
  let view = null;
  const header = element("thead");
  const body = element("tbody");
  const grid = element("table", {}, header, body);
  const scroll = element("div", { class: "scroll differences", tabindex: 0, role: "group", "aria-label": "Keys that differ" }, grid);
  const empty = element("div", { class: "empty" });

  function draw(drawn) {
    view = drawn;
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
      : from.epoch === to.epoch && !view.others ? "An epoch does not differ from itself. Choose another." : "No key differs in this way between the two epochs.";
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

  return { scroll, empty, draw };
}
