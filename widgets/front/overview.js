import { button, drawPages, pushRight, scrollArea } from "./controls.js";
import { classes, element, keepFocus } from "./dom.js";
import { screen } from "./screen.js";
import { plainHeading } from "./tables.js";
import { ago, number } from "./words.js";

const NAMED_TABLES = 3; // state tables of a query that are named before the others are only counted

// The overview of a store: its queries, how recent they are, and how much space they take on disk.
export function render({ model, root, style }) {
  let ahead = 0; // this page's clock minus the kernel's, in milliseconds
  const { act, frame, busy, problem } = screen({ model, root, style }, "overview screen", (view) => {
    ahead = Date.now() - view.now;
    draw(view);
  });
  const path = element("span", { class: "name" });
  const facts = element("span", { class: "facts" });
  const head = element("div", { class: "bar head transport" }, path, facts);
  const queries = queryTable(act);
  const detail = element("section", { class: "detail", hidden: true });
  frame.append(head, busy, problem, ...queries.nodes, detail);
  frame.setAttribute("aria-label", "Store overview");
  const tick = tickWhileShown(frame, () => drawAges(frame, Date.now() - ahead));

  function draw(view) {
    path.textContent = view.path;
    facts.replaceChildren(...view.facts.map((text) => element("span", { class: "fact" }, text)));
    queries.draw(view);
    detail.hidden = !view.chosen;
    if (view.chosen) drawDetail(detail, view.chosen);
    for (const bar of frame.querySelectorAll("[data-share]")) drawShare(bar);
    tick();
  }
}

// Calls `tick` every second, without a message from the kernel, as long as the frame is in the page.
function tickWhileShown(frame, tick) {
  let ticking = null;
  function update() {
    if (frame.isConnected) return tick();
    clearInterval(ticking);
    ticking = null;
  }
  // The observer is called when the frame enters the page, and when it leaves.
  new ResizeObserver(() => {
    if (!frame.isConnected) update();
    else if (ticking === null) ticking = setInterval(update, 1000);
  }).observe(frame);
  return update;
}

function drawAges(frame, now) {
  for (const node of frame.querySelectorAll("[data-moment]")) {
    const text = ago((now - Number(node.dataset.moment)) / 1000);
    if (node.textContent !== text) node.textContent = text;
  }
}

const shareBar = (share) =>
  element("i", { class: "size", "aria-hidden": "true" }, element("b", { "data-share": share }));

// The width is set as a property, because a page may forbid style attributes.
function drawShare(bar) {
  const share = Number(bar.dataset.share);
  bar.style.width = share ? `max(1px, ${100 * share}%)` : 0;
}

function queryTable(act) {
  let view = null;
  const onDisk = plainHeading("On disk");
  onDisk.title = "Data files of the newest versions, from Delta's file lists";
  const headings = [
    plainHeading("Query"),
    plainHeading("Newest epoch"),
    plainHeading("Epochs"),
    plainHeading("State rows", true),
    onDisk,
    plainHeading("State tables"),
  ];
  const body = element("tbody");
  const table = element(
    "table",
    { "aria-label": "Queries of the store" },
    element("thead", {}, element("tr", {}, ...headings)),
    body,
  );
  const scroll = scrollArea("Queries", {}, table);
  const text = element("span", { class: "pager faint" });
  const turn = (by) => act("page", view.offset / view.size + by);
  const previous = button({ onclick: () => turn(-1) }, "Previous");
  const next = button({ onclick: () => turn(1) }, "Next");
  const foot = element("div", { class: "bar" }, pushRight(), text, previous, next);
  const empty = element(
    "div",
    { class: "empty" },
    "This store does not contain any queries yet. The first one will appear here.",
  );

  function queryRow(row) {
    const indent = `${"\u2003".repeat(Math.max(0, row.depth - 1))}└ `;
    const name = element(
      "th",
      { scope: "row" },
      row.depth ? element("span", { class: "branch faint", "aria-hidden": "true" }, indent) : "",
      button({ "aria-expanded": String(row.chosen), onclick: () => act("query", row.at) }, row.name),
      row.fork ? element("small", { class: "faint" }, row.fork) : "",
    );
    return element("tr", { class: classes(row.chosen && "chosen") }, name, ...queryCells(row));
  }

  function draw(drawn) {
    view = drawn;
    empty.hidden = view.total > 0;
    scroll.hidden = view.total === 0;
    keepFocus(body, () => body.replaceChildren(...view.rows.map(queryRow)));
    foot.hidden = view.total <= view.size;
    drawPages({ text, previous, next }, { offset: view.offset, rows: view.rows.length, total: view.total }, " queries");
  }
  return { nodes: [scroll, foot, empty], draw };
}

function queryCells(row) {
  if (row.problem) {
    const message = element("span", {}, element("strong", {}, "Cannot be read. "), row.problem);
    return [element("td", { colspan: 5, class: "broken" }, message)];
  }
  return [
    element("td", {}, ...newestEpoch(row)),
    element("td", {}, number(row.captured), row.gaps ? element("small", { class: "faint" }, row.gaps) : ""),
    element(
      "td",
      { class: "number" },
      stateRows(row.rows),
      row.changes ? element("small", { class: "faint" }, row.changes) : "",
    ),
    element("td", {}, row.size, shareBar(row.share)),
    element("td", { title: row.tables.join(", ") }, tableNames(row.tables)),
  ];
}

// Capture does not count the state, and neither does an overview, which would have to read it.
const stateRows = (rows) =>
  rows === null
    ? element("span", { class: "faint", title: "Not counted: the state has not been read here" }, "–")
    : number(rows);

function newestEpoch({ epoch, committed, moment, lag, delays }) {
  if (epoch === null) return [element("span", { class: "faint" }, "none captured yet"), element("small", {}, delays)];
  const age = moment === null ? "" : element("span", { class: "faint", "data-moment": moment });
  return [
    element("span", { title: committed }, `${epoch} `, age),
    element("small", { class: "faint" }, lag ? `captured ${lag}` : ""),
    element("small", {}, delays),
  ];
}

export function tableNames(tables) {
  if (tables.length <= NAMED_TABLES) return tables.join(", ");
  const named = tables.slice(0, NAMED_TABLES - 1);
  return [...named, `${tables.length - named.length} more`].join(", ");
}

// The state tables of the query that is chosen.
function drawDetail(detail, { name, checkpoint, tables }) {
  const label = `State tables of ${name}`;
  detail.setAttribute("aria-label", label);
  const headings = [
    plainHeading("State table"),
    plainHeading("Rows", true),
    plainHeading("Files", true),
    plainHeading("On disk"),
  ];
  const table = element(
    "table",
    { "aria-label": label },
    element("thead", {}, element("tr", {}, ...headings)),
    element("tbody", {}, ...tables.map(tableRow)),
  );
  detail.replaceChildren(
    element(
      "div",
      { class: "bar" },
      element("strong", {}, name),
      element("span", { class: "faint checkpoint" }, checkpoint),
    ),
    tables.length
      ? scrollArea("State tables", {}, table)
      : element("div", { class: "empty" }, "This query has no state tables yet."),
  );
}

const tableRow = ({ name, rows, files, size, share }) =>
  element(
    "tr",
    {},
    element("th", { scope: "row" }, name),
    element("td", { class: "number" }, stateRows(rows)),
    element("td", { class: "number" }, number(files)),
    element("td", {}, size, shareBar(share)),
  );
