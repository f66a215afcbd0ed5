import { button, group, iconButton, pager, searchBox, selectBox } from "./controls.js";
import { element, fill } from "./dom.js";
import { number, range } from "./words.js";

// Which rows of a state table are shown: all or only those that changed, the filters, and the page.
export function rowControls({ act, answered, root }) {
  let view = null;
  const all = button({ onclick: () => act("rows", "all") }, "All rows");
  const changed = button({ onclick: () => act("rows", "changed") }, "Changes");
  const column = selectBox("Column to filter", () => filter());
  const text = searchBox({ placeholder: "contains…", "aria-label": "Text to filter for" }, () => filter());
  const condition = conditionInput(() => filter());
  const filter = () => act("filter", { column: column.value, text: text.value, where: condition.sent() });
  const pageNumber = () => Math.floor(view.page.offset / view.selection.size);
  const pages = pager({
    turn: (by) => act("page", pageNumber() + by),
    resize: (rows) => act("size", rows),
  });
  const node = element(
    "div",
    { class: "bar" },
    group("Rows shown", all, changed),
    column,
    text,
    condition.node,
    element("span", { class: "pages push" }, ...pages.parts),
  );
  const invalid = element("div", { class: "wrong", role: "alert", hidden: true });

  function drawFilters({ selection, columns, problem }) {
    const known = [selection.column, column.value].find((name) => columns.includes(name));
    fill(column, columns, known ?? columns[0]);
    if (answered() && root.activeElement !== text) text.value = selection.text;
    if (answered() && root.activeElement !== condition.node) condition.set(selection.where);
    condition.node.setAttribute("aria-invalid", Boolean(problem));
    invalid.hidden = !problem;
    if (problem) invalid.textContent = `Invalid condition: ${problem}`;
  }

  function draw(drawn) {
    view = drawn;
    node.hidden = false;
    all.setAttribute("aria-pressed", view.selection.rows === "all");
    changed.setAttribute("aria-pressed", view.selection.rows === "changed");
    drawFilters(view);
    const { offset, matching, rows } = view.page;
    pages.draw({ offset, rows: rows.length, total: matching }, view.selection.size);
  }
  return { nodes: [node, invalid], draw, pages, focusFilter: () => text.focus() };
}

// The condition in SQL: it is sent when it is complete, not while it is being typed.
function conditionInput(send) {
  let sent = "";
  const commit = () => {
    if (node.value === sent) return;
    sent = node.value;
    send();
  };
  const node = element("input", {
    type: "search",
    class: "where",
    placeholder: "SQL: column > 10",
    "aria-label": "Condition in SQL",
    spellcheck: "false",
    autocomplete: "off",
    onchange: commit,
    onsearch: commit,
    onkeydown: (event) => event.key === "Enter" && commit(),
  });
  const set = (condition) => {
    node.value = sent = condition;
  };
  return { node, set, sent: () => sent };
}

// Which columns of a wide table are shown.
export function columnWindow({ act, answered, root }) {
  let view = null;
  let width = 0; // value columns that fit
  const turn = (by) => act("columns", { from: Math.max(0, view.page.window.first + by * width) });
  const previous = iconButton("previous", "Previous columns", () => turn(-1));
  const next = iconButton("next", "Next columns", () => turn(1));
  const summary = element("span", { class: "which", role: "status" });
  const search = searchBox({ placeholder: "find a column…", "aria-label": "Column name to look for" }, (named) =>
    act("columns", { named, from: 0 }),
  );
  const node = element(
    "div",
    { class: "bar columns", hidden: true },
    summary,
    group("Columns", previous, next),
    search,
  );

  function draw(drawn) {
    view = drawn;
    const columns = view.page.window;
    node.hidden = !columns;
    if (!columns) return;
    width = Math.max(width, columns.shown);
    summary.textContent = columnsShown(columns);
    previous.disabled = columns.first === 0;
    next.disabled = columns.first + columns.shown >= columns.found;
    if (answered() && root.activeElement !== search) search.value = columns.named;
  }
  return { node, draw };
}

export function columnsShown({ first, shown, found, total, named }) {
  const matching = named ? found : total;
  const columns = shown ? range({ offset: first, rows: shown, total: matching }) : number(matching);
  return named ? `Columns ${columns} that match, ${number(total)} in all` : `Columns ${columns}`;
}
