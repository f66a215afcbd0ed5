import { differences } from "./differences.js";
import { element, fill, icon, keep, number } from "./dom.js";
import { operatorGraph } from "./operators.js";
import { screen } from "./screen.js";
import { sparkline, treeOf } from "./tree.js";

// The debugger: the branches of a session, its buttons, what its last step changed, what is watched, the operators.
export function render({ model, root, style }) {
  let view = null;
  const { act, answered, frame, busy, problem } = screen({ model, root, style }, "screen debugger", (drawn) => { view = drawn; if (pressed) late = true; else draw(); });

  // What is under a pressed pointer stays until it is let go: a button that is drawn anew meanwhile hears no click.
  let pressed = false;
  let late = false;
  const release = () => setTimeout(() => { pressed = false; if (late) draw(); late = false; }, 0);
  frame.addEventListener("pointerdown", () => { pressed = true; for (const end of ["pointerup", "pointercancel"]) window.addEventListener(end, release, { once: true }); });

  // Head: which branch, where on it.
  const name = element("span", { class: "name" });
  const facts = element("span", { class: "facts faint" });
  const head = element("div", { class: "bar head" }, name, facts);

  // Buttons: what can be done; the field beside them says until when.
  const many = element("input", { type: "number", min: 1, max: 1000, step: 1, value: 1, "aria-label": "How many epochs" });
  const count = () => Math.max(1, Math.round(Number(many.value)) || 1);
  const back = element("button", { type: "button", title: "Go so many epochs back; the next step then begins a branch", onclick: () => act("back", count()) }, icon("previous"), "Back");
  const step = element("button", { type: "button", title: "Run so many epochs, with the original’s input", onclick: () => act("step", count()) }, "Step", icon("next"));
  const moves = element("span", { class: "group", role: "group", "aria-label": "Back and forward" }, back, many, step);
  const condition = element("input", { type: "text", placeholder: "a condition, or error", "aria-label": "Run until: a condition on the rows that change, or error", spellcheck: "false" });
  const run = element("button", { type: "button", onclick: () => act("until", condition.value) }, "Run until");
  entered(condition, () => run.disabled || act("until", condition.value));
  const interrupt = element("button", { type: "button", class: "interrupt", onclick: () => act("interrupt") }, "Interrupt");
  const buttons = element("div", { class: "bar transport" }, moves, element("span", { class: "field until" }, run, condition), interrupt);

  // Status: what runs, or what came of it.
  const bar = element("i", {});
  const progress = element("div", { class: "progress", role: "progressbar", "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": "How far it is" }, bar);
  const said = element("span", { role: "status" });
  const ran = element("span", { class: "facts" });
  const status = element("div", { class: "bar status" }, said, ran);
  const whole = element("pre", { tabindex: 0, "aria-label": "The whole error" });
  const more = element("details", {}, element("summary", {}, "All of it"), whole);
  const short = element("div", {});
  const trouble = element("div", { class: "trouble", role: "alert", hidden: true }, short, more);

  // Branches.
  const tree = treeOf(act);
  const here = element("button", { type: "button", onclick: () => act("here") }, "Where it stands");
  const go = element("button", { type: "button", onclick: () => act("goto") });
  const looked = element("strong", {});
  const told = element("span", { class: "facts faint" });
  const branches = element("section", { class: "branches", "aria-label": "Branches" }, tree.node,
    element("div", { class: "bar looked" }, looked, told, element("span", { class: "push" }), go, here));

  // What the epoch changed.
  const title = element("h3", {});
  const table = element("select", { "aria-label": "State table", onchange: () => act("diff", ["table", table.value]) });
  const untilKey = element("button", { type: "button", onclick: () => act("until_key") });
  const counts = element("span", { class: "counts" });
  const { scroll, empty, draw: drawRows } = differences((what, value) => act("diff", [what, value]));
  const pager = element("span", { class: "pager faint" });
  const page = () => Math.floor(view.diff.page.offset / view.diff.selection.size);
  const newer = element("button", { type: "button", "aria-label": "Previous page", title: "Previous page", onclick: () => act("diff", ["page", page() - 1]) }, icon("previous"));
  const older = element("button", { type: "button", "aria-label": "Next page", title: "Next page", onclick: () => act("diff", ["page", page() + 1]) }, icon("next"));
  const pages = element("span", { class: "pages" }, pager, element("span", { class: "group", role: "group", "aria-label": "Pages" }, newer, older));
  const nothing = element("div", { class: "empty" });
  const changed = element("section", { class: "part changed", "aria-label": "What the epoch changed" },
    element("div", { class: "title" }, title, table, counts, element("span", { class: "push" }), pages), untilKey, scroll, empty, nothing);

  // What is watched.
  const expression = element("input", { type: "text", placeholder: "count(*)", "aria-label": "Expression to watch", spellcheck: "false" });
  const watch = () => { if (expression.value.trim() && !add.disabled) { act("watch", expression.value); expression.value = ""; } };
  const add = element("button", { type: "button", onclick: watch }, "Watch");
  entered(expression, watch);
  const watches = element("div", { class: "watches" });
  const watchesTitle = element("h3", {}, "Watched");
  const watching = element("section", { class: "part watching", "aria-label": "Watched" }, element("div", { class: "title" }, watchesTitle),
    watches, element("div", { class: "field" }, expression, add));

  // The operators.
  const { parts: drawnOperators, draw: operators } = operatorGraph();
  const graph = element("section", { class: "part graph", "aria-label": "Operators" }, element("h3", {}, "Operators"), ...drawnOperators);
  const side = element("div", { class: "side" }, watching, graph);
  frame.append(head, busy, problem, buttons, progress, status, trouble, branches, element("div", { class: "parts" }, changed, side));

  // JupyterLab keeps Enter from being a change.
  function entered(input, then) {
    input.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); then(); } });
  }

  function drawHead() {
    name.textContent = view.name;
    frame.setAttribute("aria-label", `Debugger of ${view.name}`);
    facts.replaceChildren(...view.facts.map((fact) => element("span", { class: "fact" }, fact)));
  }

  function drawStatus() {
    const { doing } = view;
    const works = Boolean(doing);
    step.disabled = run.disabled = add.disabled = go.disabled = untilKey.disabled = works;
    back.disabled = works || view.first;
    interrupt.hidden = !works;
    interrupt.disabled = works && doing.interrupting;
    const known = works && doing.share !== null;
    progress.classList.toggle("idle", !works);
    progress.classList.toggle("unknown", works && !known);
    if (known) progress.setAttribute("aria-valuenow", Math.round(100 * doing.share));
    else progress.removeAttribute("aria-valuenow");
    progress.setAttribute("aria-hidden", String(!works));
    bar.style.width = known ? `${100 * doing.share}%` : "";
    const line = works ? `${doing.what}${doing.line ? `: ${doing.line}` : "…"}${doing.interrupting ? " It stops as soon as it can." : ""}` : view.said;
    if (said.textContent !== line) said.textContent = line;
    ran.replaceChildren(...(works ? [] : view.ran).map(([what, value]) => element("span", { class: "fact" }, element("b", {}, what), ` ${value}`)));
    status.hidden = !line && !ran.childElementCount;
    const wrong = view.trouble;
    trouble.hidden = !wrong || works;
    if (!wrong) return;
    short.replaceChildren(element("strong", {}, `${wrong.what}: `), wrong.short);
    more.hidden = !wrong.whole;
    whole.textContent = wrong.whole;
  }

  function drawLook() {
    const { branch, epoch, here: standing, go: way, told: known } = view.look;
    looked.textContent = standing ? `Epoch ${number(epoch)}, where it stands` : `Epoch ${number(epoch)} of ${branch}`;
    told.replaceChildren(...known.map((each) => element("span", { class: "fact" }, each)));
    go.hidden = !way;
    go.textContent = way;
    here.hidden = standing;
  }

  function drawChanged() {
    const { diff, look } = view;
    title.textContent = `What epoch ${number(look.epoch)} changed`;
    for (const part of [table, counts, scroll, empty, pages]) part.hidden = !diff;
    nothing.hidden = Boolean(diff);
    nothing.textContent = view.no_diff;
    untilKey.hidden = !diff || !view.key;
    untilKey.textContent = `Run until ${view.key} changes`;
    if (!diff) return;
    table.hidden = diff.tables.length < 2;
    fill(table, diff.tables, diff.table);
    const signs = { added: "+", changed: "~", removed: "−" };
    counts.replaceChildren(...Object.entries(signs).map(([kind, sign]) => element("span", { class: `count ${diff.counts[kind] ? kind : "none"}` }, `${sign}${number(diff.counts[kind])} ${kind}`)));
    drawRows(diff);
    if (!diff.page.rows.length) empty.textContent = "This epoch changed no key of this state table.";
    const { offset, matching, rows } = diff.page;
    pages.hidden = matching <= rows.length;
    pager.textContent = rows.length ? `${number(offset + 1)}–${number(offset + rows.length)} of ${number(matching)}` : "";
    newer.disabled = offset === 0;
    older.disabled = offset + rows.length >= matching;
  }

  // Examples with a column that there is.
  function suggest() {
    const column = view.diff?.columns.find((each) => each.moves);
    if (!column) return;
    const written = /^[a-z_]\w*$/i.test(column.name) ? column.name : `"${column.name}"`;
    condition.placeholder = `${written} > 300, or error`;
    expression.placeholder = `max(${written})`;
  }

  function drawWatches() {
    const at = view.watched_at;
    watchesTitle.textContent = at === null ? "Watched" : `Watched, at epoch ${number(at)}`;
    keep(watches, () => watches.replaceChildren(view.watches.length
      ? element("table", { "aria-label": "Watched expressions" },
        element("thead", { class: "hidden" }, element("tr", {}, ...["expression", "value", "change", "course", "remove"].map((each) => element("th", { scope: "col" }, each)))),
        element("tbody", {}, ...view.watches.map(watched)))
      : element("p", { class: "faint" }, "Nothing yet. A watched expression is an aggregate over the state, such as count(*), and shows how each step moves it.")));
  }

  function watched({ expression: text, now, was, moved, course }, i) {
    const change = moved || (was ? `was ${was.text}` : "");
    const remove = element("button", { type: "button", "aria-label": `Watch ${text} no longer`, title: "Watch it no longer", "data-at": `unwatch ${text}`, disabled: Boolean(view.doing), onclick: () => act("unwatch", i) }, "×");
    return element("tr", {}, element("th", { scope: "row", title: text }, element("code", {}, text)),
      element("td", { class: now.kind === "null" ? "number null" : "number", title: now.whole }, now.text),
      element("td", { class: `number ${moved ? (moved[0] === "−" ? "down" : "up") : "faint"}` }, change),
      element("td", {}, sparkline(course, `${text}: its course over ${course.length} epochs`)), element("td", {}, remove));
  }

  function draw() {
    drawHead();
    drawStatus();
    tree.draw(view);
    drawLook();
    drawChanged();
    suggest();
    drawWatches();
    graph.hidden = !view.operators;
    if (view.operators) operators(view.operators, null);
  }
}
