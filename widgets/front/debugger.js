import { button, drawWhenReleased, group, onEnter, pager, pushRight, selectBox } from "./controls.js";
import { differences } from "./diff_rows.js";
import { element, fact, fill, icon, keepFocus } from "./dom.js";
import { operatorGraph } from "./operators.js";
import { screen } from "./screen.js";
import { sparkline } from "./sparkline.js";
import { cellClass, changeCount } from "./tables.js";
import { branchTree } from "./tree.js";
import { number } from "./words.js";

// The debugger: the branches of a session, its buttons, what its last step changed, what is watched, the operators.
export function render({ model, root, style }) {
  let view = null;
  const { act, frame, busy, problem } = screen({ model, root, style }, "screen debugger", (drawn) => {
    view = drawn;
    redraw();
  });
  const redraw = drawWhenReleased(frame, draw);
  const name = element("span", { class: "name" });
  const facts = element("span", { class: "facts faint" });
  const head = element("div", { class: "bar head" }, name, facts);
  const buttons = stepButtons(act);
  const status = runStatus();
  const branches = sessionBranches(act);
  const changed = changedKeys(act);
  const watches = watchedExpressions(act);
  const { parts, draw: drawOperators } = operatorGraph();
  const graph = element(
    "section",
    { class: "part graph", "aria-label": "Operators" },
    element("h3", {}, "Operators"),
    ...parts,
  );
  const side = element("div", { class: "side" }, watches.node, graph);
  frame.append(head, busy, problem, buttons.node, ...status.nodes, branches.node);
  frame.append(element("div", { class: "parts" }, changed.node, side));

  function draw() {
    name.textContent = view.name;
    frame.setAttribute("aria-label", `Debugger of ${view.name}`);
    facts.replaceChildren(...view.facts.map((text) => element("span", { class: "fact" }, text)));
    for (const part of [buttons, status, branches, changed, watches]) part.draw(view);
    buttons.suggest(exampleColumn(view.diff));
    watches.suggest(exampleColumn(view.diff));
    graph.hidden = !view.operators;
    if (view.operators) drawOperators(view.operators, null);
  }
}

// A column for the examples in the text fields, quoted as SQL needs it.
export function exampleColumn(diff) {
  const column = diff?.columns.find((candidate) => candidate.moves);
  if (!column) return null;
  return /^[a-z_]\w*$/i.test(column.name) ? column.name : `"${column.name}"`;
}

const clickOnEnter = (target) => (event) => {
  event.preventDefault();
  target.click();
};

// What can be done: steps back and forward, and a run until a condition holds.
function stepButtons(act) {
  const epochs = element("input", {
    type: "number",
    min: 1,
    max: 1000,
    step: 1,
    value: 1,
    "aria-label": "How many epochs",
  });
  const count = () => Math.max(1, Math.round(Number(epochs.value)) || 1);
  const back = button(
    { title: "Go back this many epochs; the next step then starts a branch", onclick: () => act("back", count()) },
    icon("previous"),
    "Back",
  );
  const step = button(
    { title: "Run this many epochs with the original’s input", onclick: () => act("step", count()) },
    "Step",
    icon("next"),
  );
  const condition = element("input", {
    type: "text",
    placeholder: "a condition, or error",
    "aria-label": "Run until: a condition on the rows that change, or error",
    spellcheck: "false",
  });
  const run = button({ onclick: () => act("until", condition.value) }, "Run until");
  onEnter(condition, clickOnEnter(run));
  const interrupt = button({ class: "interrupt", onclick: () => act("interrupt") }, "Interrupt");
  const node = element(
    "div",
    { class: "bar transport" },
    group("Back and forward", back, epochs, step),
    element("span", { class: "field until" }, run, condition),
    interrupt,
  );

  function draw({ doing, first }) {
    const running = Boolean(doing);
    step.disabled = run.disabled = running;
    back.disabled = running || first;
    interrupt.hidden = !running;
    interrupt.disabled = running && doing.interrupting;
  }
  function suggest(column) {
    if (column) condition.placeholder = `${column} > 300, or error`;
  }
  return { node, draw, suggest };
}

// What is running, or what the last run did.
function runStatus() {
  const bar = element("i", {});
  const progress = element(
    "div",
    { class: "progress", role: "progressbar", "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": "Progress" },
    bar,
  );
  const message = element("span", { role: "status" });
  const results = element("span", { class: "facts" });
  const status = element("div", { class: "bar status" }, message, results);
  const whole = element("pre", { tabindex: 0, "aria-label": "The whole error" });
  const details = element("details", {}, element("summary", {}, "Full message"), whole);
  const short = element("div", {});
  const trouble = element("div", { class: "trouble", role: "alert", hidden: true }, short, details);

  function drawProgress(doing) {
    const known = Boolean(doing) && doing.share !== null;
    progress.classList.toggle("idle", !doing);
    progress.classList.toggle("unknown", Boolean(doing) && !known);
    if (known) progress.setAttribute("aria-valuenow", Math.round(100 * doing.share));
    else progress.removeAttribute("aria-valuenow");
    progress.setAttribute("aria-hidden", String(!doing));
    bar.style.width = known ? `${100 * doing.share}%` : "";
  }

  function draw({ doing, outcome, ran, trouble: error }) {
    drawProgress(doing);
    const line = doing ? runningLine(doing) : outcome;
    if (message.textContent !== line) message.textContent = line;
    results.replaceChildren(...(doing ? [] : ran).map(([what, value]) => fact(what, value)));
    status.hidden = !line && !results.childElementCount;
    trouble.hidden = !error || Boolean(doing);
    if (!error) return;
    short.replaceChildren(element("strong", {}, `${error.what}: `), error.short);
    details.hidden = !error.whole;
    whole.textContent = error.whole;
  }
  return { nodes: [progress, status, trouble], draw };
}

export const runningLine = ({ what, line, interrupting }) =>
  `${what}${line ? `: ${line}` : "…"}${interrupting ? " · stopping as soon as possible" : ""}`;

// The branches, and the epoch of one of them that is looked at.
function sessionBranches(act) {
  const tree = branchTree(act);
  const here = button({ onclick: () => act("here") }, "Current position");
  const go = button({ onclick: () => act("goto") });
  const title = element("strong", {});
  const notes = element("span", { class: "facts faint" });
  const bar = element("div", { class: "bar looked" }, title, notes, pushRight(), go, here);
  const node = element("section", { class: "branches", "aria-label": "Branches" }, tree.node, bar);

  function draw(view) {
    const look = view.look;
    tree.draw(view);
    title.textContent = look.here
      ? `Epoch ${number(look.epoch)}, the current position`
      : `Epoch ${number(look.epoch)} of ${look.branch}`;
    notes.replaceChildren(...look.facts.map((text) => element("span", { class: "fact" }, text)));
    go.hidden = !look.go;
    go.textContent = look.go;
    go.disabled = Boolean(view.doing);
    here.hidden = look.here;
  }
  return { node, draw };
}

// The keys that the epoch changed.
function changedKeys(act) {
  let diff = null;
  const title = element("h3", {});
  const table = selectBox("State table", (chosen) => act("diff", ["table", chosen]));
  const untilKey = button({ onclick: () => act("until_key") });
  const counts = element("span", { class: "counts" });
  const rows = differences((what, value) => act("diff", [what, value]));
  const pageNumber = () => Math.floor(diff.page.offset / diff.selection.size);
  const pages = pager({ turn: (by) => act("diff", ["page", pageNumber() + by]) });
  const pagesNode = element("span", { class: "pages" }, ...pages.parts);
  const nothing = element("div", { class: "empty" });
  const node = element(
    "section",
    { class: "part changed", "aria-label": "What the epoch changed" },
    element("div", { class: "title" }, title, table, counts, pushRight(), pagesNode),
    untilKey,
    rows.scroll,
    rows.empty,
    nothing,
  );

  function drawDiff() {
    table.hidden = diff.tables.length < 2;
    fill(table, diff.tables, diff.table);
    const kinds = ["added", "changed", "removed"];
    counts.replaceChildren(...kinds.map((kind) => changeCount(kind, number(diff.counts[kind]), {}, ` ${kind}`)));
    rows.draw(diff);
    if (!diff.page.rows.length) rows.empty.textContent = "This epoch changed no key of this state table.";
    const { offset, matching, rows: shown } = diff.page;
    pagesNode.hidden = matching <= shown.length;
    pages.draw({ offset, rows: shown.length, total: matching });
  }

  function draw(view) {
    diff = view.diff;
    title.textContent = `What epoch ${number(view.look.epoch)} changed`;
    for (const part of [table, counts, rows.scroll, rows.empty, pagesNode]) part.hidden = !diff;
    nothing.hidden = Boolean(diff);
    nothing.textContent = view.no_diff;
    untilKey.hidden = !diff || !view.key;
    untilKey.textContent = `Run until ${view.key} changes`;
    untilKey.disabled = Boolean(view.doing);
    if (diff) drawDiff();
  }
  return { node, draw };
}

// The expressions that are watched, and a field to add another.
function watchedExpressions(act) {
  const expression = element("input", {
    type: "text",
    placeholder: "count(*)",
    "aria-label": "Expression to watch",
    spellcheck: "false",
  });
  function watch() {
    if (!expression.value.trim()) return;
    act("watch", expression.value);
    expression.value = "";
  }
  const add = button({ onclick: watch }, "Watch");
  onEnter(expression, clickOnEnter(add));
  const list = element("div", { class: "watches" });
  const title = element("h3", {}, "Watched");
  const node = element(
    "section",
    { class: "part watching", "aria-label": "Watched" },
    element("div", { class: "title" }, title),
    list,
    element("div", { class: "field" }, expression, add),
  );

  function watchRow({ expression: text, now, was, moved, course }, place, disabled) {
    const change = moved || (was ? `was ${was.text}` : "");
    const remove = button(
      {
        "aria-label": `Stop watching ${text}`,
        title: "Stop watching",
        "data-at": `unwatch ${text}`,
        disabled,
        onclick: () => act("unwatch", place),
      },
      "×",
    );
    return element(
      "tr",
      {},
      element("th", { scope: "row", title: text }, element("code", {}, text)),
      element("td", { class: cellClass(now, true), title: now.whole }, now.text),
      element("td", { class: `number ${moved ? (moved[0] === "−" ? "down" : "up") : "faint"}` }, change),
      element("td", {}, sparkline(course, `${text} over ${course.length} epochs`)),
      element("td", {}, remove),
    );
  }

  function draw({ watches, watched_at: epoch, doing }) {
    add.disabled = Boolean(doing);
    title.textContent = epoch === null ? "Watched" : `Watched, at epoch ${number(epoch)}`;
    const rows = watches.map((watch, i) => watchRow(watch, i, Boolean(doing)));
    keepFocus(list, () => list.replaceChildren(rows.length ? watchTable(rows) : nothingWatched()));
  }
  function suggest(column) {
    if (column) expression.placeholder = `max(${column})`;
  }
  return { node, draw, suggest };
}

function watchTable(rows) {
  const headings = ["expression", "value", "change", "trend", "remove"];
  return element(
    "table",
    { "aria-label": "Watched expressions" },
    element(
      "thead",
      { class: "hidden" },
      element("tr", {}, ...headings.map((text) => element("th", { scope: "col" }, text))),
    ),
    element("tbody", {}, ...rows),
  );
}

const nothingWatched = () =>
  element(
    "p",
    { class: "faint" },
    "Nothing yet. Watch an aggregate over the state, such as count(*), to see how each step changes it.",
  );
