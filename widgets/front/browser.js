import { KINDS, element, fill, icon, keep, mark, number } from "./dom.js";
import { at, count, positionOf } from "./epochs.js";
import { help } from "./help.js";
import { screen } from "./screen.js";
import { legend, strip } from "./strip.js";
import { wholeValue } from "./whole.js";

const BETWEEN = 50; // milliseconds between two places of a slider that is dragged, as the kernel hears of them

// The state browser: which state of which query, at which epoch, and its rows.
export function render({ model, root, style }) {
  let view = null;
  let dragging = false;
  let reached = 0; // the row that the Tab key leads to
  let closed = null; // the row to go back to when its key's life is closed
  let lookedAt = ""; // key and epoch that the history was last scrolled to
  const { act, answered, frame, busy, problem } = screen({ model, root, style }, "browser", (drawn) => { view = drawn; draw(); });

  // Head: which state of which query.
  const name = element("span", { class: "name" });
  const table = element("select", { "aria-label": "State table", onchange: () => act("table", table.value) });
  const facts = element("span", { class: "facts", role: "status" });
  const told = element("span", { class: "facts told" });
  const counts = element("span", { class: "counts push" });
  const keys = help();
  const head = element("div", { class: "bar head" }, name, table, facts, told, counts, keys.button);

  // Transport: which epoch.
  const go = (position) => act("epoch", at(view.captured, Math.max(0, Math.min(position, last()))));
  const last = () => count(view.captured) - 1;
  const place = () => positionOf(view.captured, view.epoch);
  const button = (which, label, onclick) => element("button", { type: "button", "aria-label": label, title: label, onclick }, icon(which));
  const first = button("first", "First epoch", () => go(0));
  const previous = button("previous", "Previous epoch", () => go(place() - 1));
  const playOrPause = () => last() > 0 && act("play", view.selection.playing ? null : at(view.captured, place() === last() ? 0 : place()));
  const play = button("play", "Play", playOrPause);
  const next = button("next", "Next epoch", () => go(place() + 1));
  const final = button("last", "Last epoch", () => go(last()));
  const epoch = element("span", { class: "epoch" });
  const slider = element("input", { type: "range", min: 0, step: 1, "aria-label": "Epoch" });
  let moved = 0;
  let later;
  function move() {
    moved = performance.now();
    go(Number(slider.value));
  }
  slider.addEventListener("input", () => {
    dragging = true;
    label();
    clearTimeout(later);
    later = setTimeout(move, Math.max(0, BETWEEN - (performance.now() - moved)));
  });
  slider.addEventListener("change", () => { dragging = false; });
  const beside = strip();
  const dot = element("i", { "aria-hidden": "true" });
  const follow = element("button", { type: "button", class: "follow", title: "Show each new epoch as it is captured",
    onclick: () => (view.following ? act("epoch", view.epoch) : act("follow")) }, dot, "Follow live");
  const transport = element("div", { class: "bar transport" },
    element("span", { class: "group", role: "group", "aria-label": "Epochs" }, first, previous, play, next, final),
    epoch, element("span", { class: "track" }, beside.node, slider), follow);

  // Rows: which rows of the table.
  const all = element("button", { type: "button", onclick: () => act("rows", "all") }, "All rows");
  const only = element("button", { type: "button", onclick: () => act("rows", "changed") }, "Changes");
  const column = element("select", { "aria-label": "Column to filter", onchange: () => sought() });
  const text = element("input", { type: "search", placeholder: "contains…", "aria-label": "Text to filter for" });
  let typing;
  const sought = () => act("filter", { column: column.value, text: text.value, where: condition });
  const where = element("input", { type: "search", class: "where", placeholder: "SQL: count > 10", "aria-label": "Condition in SQL", spellcheck: "false", autocomplete: "off",
    onchange: () => stated(), onsearch: () => stated(), onkeydown: (event) => { if (event.key === "Enter") stated(); } });
  let condition = ""; // as the kernel heard it last
  function stated() {
    if (where.value === condition) return;
    condition = where.value;
    sought();
  }
  const wrong = element("div", { class: "wrong", role: "alert", hidden: true });
  text.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(sought, 250); });
  const span = element("span", { class: "pager faint" });
  const back = element("button", { type: "button", "aria-label": "Previous page", title: "Previous page", onclick: () => act("page", page() - 1) }, icon("previous"));
  const on = element("button", { type: "button", "aria-label": "Next page", title: "Next page", onclick: () => act("page", page() + 1) }, icon("next"));
  const size = element("select", { "aria-label": "Rows per page", onchange: () => act("size", Number(size.value)) },
    ...[10, 25, 50, 100].map((rows) => element("option", { value: rows }, `${rows} rows`)));
  const page = () => Math.floor(view.page.offset / view.selection.size);
  const controls = element("div", { class: "bar" },
    element("span", { class: "group", role: "group", "aria-label": "Rows shown" }, all, only), column, text, where,
    element("span", { class: "pages push" }, span, element("span", { class: "group", role: "group", "aria-label": "Pages" }, back, on), size));

  // Columns: which of many.
  const named = element("input", { type: "search", placeholder: "find a column…", "aria-label": "Column name to look for" });
  let naming;
  named.addEventListener("input", () => { clearTimeout(naming); naming = setTimeout(() => act("columns", { named: named.value, from: 0 }), 250); });
  const which = element("span", { class: "which", role: "status" });
  const turn = (by) => act("columns", { from: Math.max(0, view.page.window.first + by * width) });
  let width = 0; // value columns that are shown at once
  const left = element("button", { type: "button", "aria-label": "Previous columns", title: "Previous columns", onclick: () => turn(-1) }, icon("previous"));
  const right = element("button", { type: "button", "aria-label": "Next columns", title: "Next columns", onclick: () => turn(1) }, icon("next"));
  const columnsBar = element("div", { class: "bar columns", hidden: true },
    which, element("span", { class: "group", role: "group", "aria-label": "Columns" }, left, right), named);

  const header = element("thead");
  const body = element("tbody");
  const grid = element("table", {}, header, body);
  const scroll = element("div", { class: "scroll", tabindex: 0, role: "group" }, grid);
  const empty = element("div", { class: "empty" });
  const history = element("section", { class: "history", "aria-label": "History of one key", hidden: true });
  const closeValue = () => { closed = closed ?? reached; act("cell", null); };
  const value = wholeValue(closeValue);
  frame.append(head, transport, busy, problem, controls, wrong, columnsBar, scroll, empty, value.node, history, keys.dialog);

  const closeHistory = () => { closed = view.page.chosen ?? reached; act("key", null); };
  const written = (node) => node && (node.matches("input:not([type=range]), select, textarea"));
  frame.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || keys.dialog.open) return;
    const deeds = {
      "/": () => text.focus(),
      "?": keys.open,
      Escape: () => (view.value ? closeValue() : view.history ? closeHistory() : null),
      " ": () => root.activeElement === slider && playOrPause(),
    };
    if (!deeds[event.key] || !view || view.epoch === null) return;
    if (written(root.activeElement) && event.key !== "Escape") return;
    if (event.key === " " && root.activeElement !== slider) return;
    if (event.key === "Escape" && !view.value && !view.history) return;
    event.preventDefault();
    deeds[event.key]();
  });

  function label() {
    const position = Number(slider.value);
    const shown = at(view.captured, position);
    epoch.textContent = `Epoch ${shown}`;
    slider.setAttribute("aria-valuetext", `epoch ${shown}, ${position + 1} of ${last() + 1}`);
  }

  function drawHead() {
    name.textContent = view.name;
    frame.setAttribute("aria-label", `State of ${view.name}`);
    table.hidden = view.tables.length < 2;
    fill(table, view.tables, view.table);
    facts.replaceChildren(...[["rows", number(view.total)], ...view.facts].map(([what, value]) =>
      element("span", { class: "fact" }, element("b", {}, what), ` ${value}`)));
    facts.setAttribute("aria-live", view.selection.playing || view.following ? "off" : "polite");
    told.replaceChildren(...legend(view.told));
    const none = view.counting ? "counting changes…" : "the first epoch captured";
    counts.replaceChildren(...(view.counts ? changes(view.counts) : [element("span", { class: "faint" }, none)]));
  }

  function changes({ since, added, changed, removed }) {
    const part = (mark, kind, value) =>
      element("span", { class: `count ${value ? kind : "none"}`, title: `${number(value)} keys ${kind}` },
        `${mark}${number(value)}`, element("span", { class: "hidden" }, ` ${kind}`));
    return [part("+", "added", added), " ", part("~", "changed", changed), " ", part("−", "removed", removed), " ",
      element("span", { class: "faint" }, `since epoch ${since}`)];
  }

  function drawTransport() {
    slider.max = last();
    if (!dragging && answered()) slider.value = place();
    label();
    beside.draw(view.marks);
    const here = place();
    for (const [node, off] of [[first, here === 0], [previous, here === 0], [next, here === last()], [final, here === last()]]) node.disabled = off;
    const playing = view.selection.playing;
    play.replaceChildren(icon(playing ? "pause" : "play"));
    play.title = playing ? "Pause" : "Play";
    play.setAttribute("aria-label", play.title);
    play.disabled = last() === 0;
    follow.setAttribute("aria-pressed", view.following);
  }

  function drawControls() {
    const chosen = view.selection;
    all.setAttribute("aria-pressed", chosen.rows === "all");
    only.setAttribute("aria-pressed", chosen.rows === "changed");
    const names = view.columns;
    fill(column, names, names.includes(chosen.column) ? chosen.column : names.includes(column.value) ? column.value : names[0]);
    if (answered() && root.activeElement !== text) text.value = chosen.text;
    if (answered() && root.activeElement !== where) where.value = condition = chosen.where;
    wrong.hidden = !view.problem;
    if (view.problem) wrong.textContent = `The condition does not count: ${view.problem}`;
    where.setAttribute("aria-invalid", Boolean(view.problem));
    const { offset, matching, rows } = view.page;
    span.textContent = rows.length ? `${number(offset + 1)}–${number(offset + rows.length)} of ${number(matching)}` : "";
    back.disabled = offset === 0;
    on.disabled = offset + rows.length >= matching;
    size.value = chosen.size;
  }

  function drawColumns() {
    const columns = view.page.window;
    columnsBar.hidden = !columns;
    if (!columns) return;
    width = Math.max(width, columns.shown);
    const span = columns.shown ? `${number(columns.first + 1)}–${number(columns.first + columns.shown)} of ` : "";
    which.textContent = columns.named ? `Columns ${span}${number(columns.found)} that are named so, of ${number(columns.total)}` : `Columns ${span}${number(columns.total)}`;
    left.disabled = columns.first === 0;
    right.disabled = columns.first + columns.shown >= columns.found;
    if (answered() && root.activeElement !== named) named.value = columns.named;
  }

  function drawRows() {
    const { columns, rows } = view.page;
    const numeric = columns.map((_, i) => rows.some((row) => row.cells[i].kind === "number"));
    grid.setAttribute("aria-label", `${view.table} at epoch ${view.epoch}`);
    grid.setAttribute("aria-rowcount", view.page.matching);
    scroll.setAttribute("aria-label", "Rows");
    reached = Math.max(0, Math.min(reached, rows.length - 1));
    keep(scroll, () => {
      header.replaceChildren(element("tr", {}, element("th", { class: "mark", scope: "col" }, element("span", { class: "hidden" }, "Change")),
        ...columns.map((each, i) => heading(each, numeric[i]))));
      body.replaceChildren(...rows.map((row, i) => line(row, i, numeric)));
    });
    hold();
    if (closed !== null && answered() && !view.history && !view.value) {
      body.children[closed]?.focus({ preventScroll: true });
      closed = null;
    }
    empty.hidden = rows.length > 0;
    empty.textContent = view.selection.text ? "No row contains that text." : view.selection.where && !view.problem ? "No row satisfies the condition." : view.selection.rows === "changed" ? "Nothing changed in this epoch." : "The state is empty at this epoch.";
  }

  function heading({ name: title, key }, numeric) {
    const { order_by, descending } = view.selection;
    const sorted = order_by === title;
    return element("th", { scope: "col", class: [numeric && "number", key && "held"].filter(Boolean).join(" "), "aria-sort": sorted ? (descending ? "descending" : "ascending") : "none" },
      element("button", { type: "button", title: `Sort by ${title}`, "data-at": `column ${title}`, onclick: () => act("sort", title) },
        element("span", { class: "title" }, title), key ? element("small", {}, "key") : "", element("span", { class: "way", "aria-hidden": "true" }, sorted ? (descending ? "▼" : "▲") : "")));
  }

  // The key stays in sight beside wide rows, unless it would take most of the room.
  function hold() {
    const heads = [...header.querySelectorAll("th.mark, th.held")];
    const widths = heads.map((each) => each.offsetWidth);
    const whole = widths.reduce((sum, each) => sum + each, 0);
    grid.classList.toggle("holds", whole > 0 && whole < scroll.clientWidth / 2);
    heads.forEach((_, i) => grid.style.setProperty(`--left-${i}`, `${widths.slice(0, i).reduce((sum, each) => sum + each, 0)}px`));
    for (const row of grid.rows) [...row.cells].slice(0, heads.length).forEach((each, i) => each.style.setProperty("--left", `var(--left-${i})`));
  }
  new ResizeObserver(hold).observe(scroll); // it is first drawn before it stands in the page

  const reach = (i) => {
    const wanted = body.children[Math.max(0, Math.min(i, body.children.length - 1))];
    for (const row of body.children) row.tabIndex = row === wanted ? 0 : -1;
    wanted?.focus();
  };

  function line(row, i, numeric) {
    const show = () => { if (!selecting()) act("key", i); };
    const moves = {
      Enter: show, " ": show, ArrowDown: () => reach(i + 1), ArrowUp: () => reach(i - 1), Home: () => reach(0), End: () => reach(Infinity),
      PageDown: () => on.disabled || act("page", page() + 1), PageUp: () => back.disabled || act("page", page() - 1),
    };
    const keyed = (event) => { if (event.target === event.currentTarget && moves[event.key]) { event.preventDefault(); event.stopPropagation(); moves[event.key](); } };
    const chosen = view.page.chosen === i;
    return element("tr", { class: `${KINDS[row.mark] || ""} ${chosen ? "chosen" : ""}`, "aria-current": chosen ? "true" : null, "data-at": `row ${i}`, tabindex: i === reached ? 0 : -1, onclick: show, onkeydown: keyed, onfocus: () => { reached = i; } },
      mark(row.mark), ...row.cells.map((cell, c) => shown(cell, numeric[c], row.was[c], Boolean(row.was[c]), { row: i, column: c })));
  }

  // Text that is being selected, to be copied, is no click on a row.
  function selecting() {
    const selection = root.getSelection ? root.getSelection() : document.getSelection();
    return Boolean(selection && !selection.isCollapsed && body.contains(selection.anchorNode));
  }

  function shown(cell, numeric, was, differs, place) {
    const only = view.selection.rows === "changed";
    const title = was ? `was ${was.whole || was.text}` : cell.whole;
    const long = place && cell.whole && cell.kind === "text";
    const key = place && view.page.columns[place.column].key;
    const classes = [numeric && "number", cell.kind === "null" && "null", differs && "differs", key && "held", long && "long"].filter(Boolean).join(" ");
    const open = (event) => { event.stopPropagation(); reached = place.row; act("cell", place); };
    const more = long && element("button", { type: "button", class: "more", "aria-label": `Whole value of ${view.page.columns[place.column].name}`, title: "Show the whole value", "data-at": `cell ${place.row} ${place.column}`, onclick: open }, "⋯");
    return element("td", { class: classes, title, ondblclick: place ? open : () => {} },
      was && only ? element("s", { dir: "auto" }, was.text) : "", element("span", { class: "text", dir: cell.kind === "text" ? "auto" : null }, cell.text), was && !only ? element("span", { class: "hidden" }, `, was ${was.text}`) : "", more || "");
  }

  function drawHistory() {
    const story = view.history;
    history.hidden = !story;
    if (!story) return void (lookedAt = "");
    const title = story.key.map(([what, cell]) => `${what} ${cell.text}`).join(", ");
    const close = element("button", { type: "button", class: "push", onclick: closeHistory }, "Close");
    const now = story.changes.find((change) => change.epoch <= view.epoch);
    const numeric = story.columns.map((_, i) => story.changes.some((change) => change.cells[i] && change.cells[i].kind === "number"));
    const rows = story.changes.map((change) => element("tr", { class: `${KINDS[change.mark] || ""} ${change === now ? "now" : ""}`, "aria-current": change === now ? "true" : null },
      mark(change.mark),
      element("td", {}, element("button", { type: "button", title: "Go to this epoch", onclick: () => act("epoch", change.epoch) }, `epoch ${change.epoch}`)),
      element("td", { class: "faint" }, change.committed, change.after_gap ? " · first after a gap" : ""),
      ...(change.cells.length ? change.cells.map((cell, i) => shown(cell, numeric[i], null, change.changed.includes(i))) : [element("td", { class: "null", colspan: story.columns.length || 1 }, "removed")])));
    const before = history.querySelector(".scroll")?.scrollTop || 0;
    history.replaceChildren(
      element("div", { class: "bar" }, element("strong", {}, "History of "), title, element("span", { class: "faint" }, story.more ? `the newest ${story.changes.length}; ${number(story.more)} older changes are not listed` : ""), close),
      element("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Changes of this key" },
        element("table", { "aria-label": `History of ${title}` },
          element("thead", {}, element("tr", {}, element("th", { scope: "col", class: "mark" }, element("span", { class: "hidden" }, "Change")), ...["epoch", "committed"].map((each) => element("th", { scope: "col" }, each)),
            ...story.columns.map((each, i) => element("th", { scope: "col", class: numeric[i] ? "number" : "" }, element("span", { class: "title" }, each))))),
          element("tbody", {}, ...rows))));
    const scroller = history.querySelector(".scroll");
    scroller.scrollTop = before;
    const current = `${title} ${now && now.epoch}`;
    if (current === lookedAt) return;
    lookedAt = current; // bring the change that is in force into sight, and leave it to the person from then on
    const place = story.changes.indexOf(now);
    if (place >= 0) scroller.scrollTop = rows[Math.max(0, place - 3)].offsetTop - rows[0].offsetTop;
  }

  function draw() {
    const waiting = view.epoch === null;
    for (const part of [transport, controls, scroll, facts, told, counts]) part.hidden = waiting;
    if (waiting) {
      wrong.hidden = columnsBar.hidden = value.node.hidden = true;
      name.textContent = view.name;
      table.hidden = history.hidden = true;
      empty.hidden = false;
      empty.textContent = "No epoch is captured yet. The first will show here.";
      return;
    }
    drawHead();
    drawTransport();
    drawControls();
    drawColumns();
    value.draw(view.value);
    drawRows();
    drawHistory();
  }
}
