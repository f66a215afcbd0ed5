import { element, keep, number } from "./dom.js";
import { screen } from "./screen.js";

// How long ago something was, in one unit: it changes as often as it matters.
function ago(seconds) {
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= 2 * length) return `${number(Math.floor(seconds / length))} ${unit} ago`;
  }
  return `${Math.max(0, Math.floor(seconds))} s ago`;
}

// The overview of a store: its queries, how fresh they are, and what they take on disk.
export function render({ model, root, style }) {
  let view = null;
  let ahead = 0; // this page's clock minus the kernel's, in milliseconds
  let ticking = null;
  const { act, frame, busy, problem } = screen({ model, root, style }, "overview screen", (drawn) => {
    view = drawn;
    ahead = Date.now() - view.now;
    draw();
  });

  const path = element("span", { class: "name" });
  const facts = element("span", { class: "facts" });
  const head = element("div", { class: "bar head transport" }, path, facts);
  const header = element("thead", {}, element("tr", {}, ...["Query", "Newest epoch", "Epochs", "State rows", "On disk", "State tables"].map((each, i) =>
    element("th", { scope: "col", class: i === 3 ? "number" : "", title: i === 4 ? "Data files of the newest versions, from Delta's file lists" : null }, each))));
  const body = element("tbody");
  const scroll = element("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Queries" }, element("table", { "aria-label": "Queries of the store" }, header, body));
  const pager = element("span", { class: "pager faint" });
  const back = element("button", { type: "button", onclick: () => act("page", view.offset / view.size - 1) }, "Previous");
  const on = element("button", { type: "button", onclick: () => act("page", view.offset / view.size + 1) }, "Next");
  const foot = element("div", { class: "bar" }, element("span", { class: "push" }), pager, back, on);
  const empty = element("div", { class: "empty" }, "No query is captured into this store yet. The first will show here.");
  const detail = element("section", { class: "detail", hidden: true });
  frame.append(head, busy, problem, scroll, foot, empty, detail);
  frame.setAttribute("aria-label", "Store overview");

  // Freshness is counted here: no message is needed for time to pass. Out of the page, nothing ticks.
  function tick() {
    if (!frame.isConnected) return void rest();
    const now = Date.now() - ahead;
    for (const node of frame.querySelectorAll("[data-moment]")) {
      const text = ago((now - Number(node.dataset.moment)) / 1000);
      if (node.textContent !== text) node.textContent = text;
    }
  }
  function rest() {
    clearInterval(ticking);
    ticking = null;
  }
  new ResizeObserver(() => { // hears when the frame comes into the page, and when it goes
    if (!frame.isConnected) rest();
    else if (ticking === null) ticking = setInterval(tick, 1000);
  }).observe(frame);

  const bar = (share) => element("i", { class: "size", "aria-hidden": "true" }, element("b", { "data-share": share }));
  function widths(parent) { // set as a property: a page may forbid style attributes
    for (const node of parent.querySelectorAll("[data-share]")) node.style.width = Number(node.dataset.share) ? `max(1px, ${100 * Number(node.dataset.share)}%)` : 0;
  }

  function cells(row) {
    if (row.problem) return [element("td", { colspan: 5, class: "broken" }, element("span", {}, element("strong", {}, "Cannot be read. "), row.problem))];
    const gaps = row.gaps ? element("small", { class: "faint" }, row.gaps) : "";
    const newest = row.epoch === null ? [element("span", { class: "faint" }, "none captured yet")]
      : [element("span", { title: row.committed }, `${row.epoch} `, row.moment === null ? "" : element("span", { class: "faint", "data-moment": row.moment })),
        element("small", { class: "faint" }, row.lag ? `captured ${row.lag}` : "")];
    const named = row.tables.length > 3 ? [...row.tables.slice(0, 2), `${row.tables.length - 2} more`] : row.tables;
    return [element("td", {}, ...newest), element("td", {}, number(row.captured), gaps), element("td", { class: "number" }, number(row.rows)),
      element("td", {}, row.size, bar(row.share)), element("td", { title: row.tables.join(", ") }, named.join(", "))];
  }

  function line(row) {
    const name = element("th", { scope: "row" },
      row.depth ? element("span", { class: "branch faint", "aria-hidden": "true" }, `${"\u2003".repeat(row.depth - 1)}└ `) : "",
      element("button", { type: "button", "aria-expanded": String(row.chosen), onclick: () => act("query", row.at) }, row.name),
      row.fork ? element("small", { class: "faint" }, row.fork) : "");
    return element("tr", { class: row.chosen ? "chosen" : "" }, name, ...cells(row));
  }

  function drawDetail() {
    const chosen = view.chosen;
    detail.hidden = !chosen;
    if (!chosen) return;
    detail.setAttribute("aria-label", `State tables of ${chosen.name}`);
    const rows = chosen.tables.map((each) => element("tr", {}, element("th", { scope: "row" }, each.name), element("td", { class: "number" }, number(each.rows)),
      element("td", { class: "number" }, number(each.files)), element("td", {}, each.size, bar(each.share))));
    detail.replaceChildren(
      element("div", { class: "bar" }, element("strong", {}, chosen.name), element("span", { class: "faint checkpoint" }, chosen.checkpoint)),
      rows.length ? element("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "State tables" }, element("table", { "aria-label": `State tables of ${chosen.name}` },
        element("thead", {}, element("tr", {}, ...["State table", "Rows", "Files", "On disk"].map((each, i) => element("th", { scope: "col", class: i === 1 || i === 2 ? "number" : "" }, each)))),
        element("tbody", {}, ...rows))) : element("div", { class: "empty" }, "It has no state table yet."));
    widths(detail);
  }

  function draw() {
    path.textContent = view.path;
    facts.replaceChildren(...view.facts.map((fact) => element("span", { class: "fact" }, fact)));
    empty.hidden = view.total > 0;
    scroll.hidden = view.total === 0;
    keep(body, () => body.replaceChildren(...view.rows.map(line)));
    widths(body);
    foot.hidden = view.total <= view.size;
    pager.textContent = `${number(view.offset + 1)}–${number(view.offset + view.rows.length)} of ${number(view.total)} queries`;
    back.disabled = view.offset === 0;
    on.disabled = view.offset + view.rows.length >= view.total;
    drawDetail();
    tick();
  }
}
