import { KINDS, element, fill, icon, keep, mark, number } from "./dom.js";
import { at, count, positionOf } from "./epochs.js";
import { screen } from "./screen.js";

// The state browser: which state of which query, at which epoch, and its rows.
export function render({ model, root, style }) {
  let view = null;
  let dragging = false;
  let lookedAt = ""; // key and epoch that the history was last scrolled to
  const { act, answered, frame, busy, problem } = screen({ model, root, style }, "browser", (drawn) => { view = drawn; draw(); });

  // Head: which state of which query.
  const name = element("span", { class: "name" });
  const table = element("select", { "aria-label": "State table", onchange: () => act("table", table.value) });
  const facts = element("span", { class: "facts", role: "status" });
  const counts = element("span", { class: "counts push" });
  const head = element("div", { class: "bar head" }, name, table, facts, counts);

  // Transport: which epoch.
  const go = (position) => act("epoch", at(view.captured, Math.max(0, Math.min(position, last()))));
  const last = () => count(view.captured) - 1;
  const place = () => positionOf(view.captured, view.epoch);
  const button = (which, label, onclick) => element("button", { type: "button", "aria-label": label, title: label, onclick }, icon(which));
  const first = button("first", "First epoch", () => go(0));
  const previous = button("previous", "Previous epoch", () => go(place() - 1));
  const play = button("play", "Play", () => act("play", view.selection.playing ? null : at(view.captured, place() === last() ? 0 : place())));
  const next = button("next", "Next epoch", () => go(place() + 1));
  const final = button("last", "Last epoch", () => go(last()));
  const epoch = element("span", { class: "epoch" });
  const slider = element("input", { type: "range", min: 0, step: 1, "aria-label": "Epoch" });
  slider.addEventListener("input", () => { dragging = true; label(); go(Number(slider.value)); });
  slider.addEventListener("change", () => { dragging = false; });
  const dot = element("i", { "aria-hidden": "true" });
  const follow = element("button", { type: "button", class: "follow", title: "Show each new epoch as it is captured",
    onclick: () => (view.following ? act("epoch", view.epoch) : act("follow")) }, dot, "Follow live");
  const transport = element("div", { class: "bar transport" },
    element("span", { class: "group", role: "group", "aria-label": "Epochs" }, first, previous, play, next, final),
    epoch, slider, follow);

  // Rows: which rows of the table.
  const all = element("button", { type: "button", onclick: () => act("rows", "all") }, "All rows");
  const only = element("button", { type: "button", onclick: () => act("rows", "changed") }, "Changes");
  const column = element("select", { "aria-label": "Column to filter", onchange: () => sought() });
  const text = element("input", { type: "search", placeholder: "contains…", "aria-label": "Text to filter for" });
  let typing;
  const sought = () => act("filter", { column: column.value, text: text.value });
  text.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(sought, 250); });
  const span = element("span", { class: "pager faint" });
  const back = element("button", { type: "button", "aria-label": "Previous page", title: "Previous page", onclick: () => act("page", page() - 1) }, icon("previous"));
  const on = element("button", { type: "button", "aria-label": "Next page", title: "Next page", onclick: () => act("page", page() + 1) }, icon("next"));
  const size = element("select", { "aria-label": "Rows per page", onchange: () => act("size", Number(size.value)) },
    ...[10, 25, 50, 100].map((rows) => element("option", { value: rows }, `${rows} rows`)));
  const page = () => Math.floor(view.page.offset / view.selection.size);
  const controls = element("div", { class: "bar" },
    element("span", { class: "group", role: "group", "aria-label": "Rows shown" }, all, only), column, text,
    element("span", { class: "push" }), span, element("span", { class: "group", role: "group", "aria-label": "Pages" }, back, on), size);

  const header = element("thead");
  const body = element("tbody");
  const grid = element("table", {}, header, body);
  const scroll = element("div", { class: "scroll", tabindex: 0, role: "group" }, grid);
  const empty = element("div", { class: "empty" });
  const history = element("section", { class: "history", "aria-label": "History of one key", hidden: true });
  frame.append(head, transport, busy, problem, controls, scroll, empty, history);

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
    counts.replaceChildren(...(view.counts ? changes(view.counts) : [element("span", { class: "faint" }, "the first epoch captured")]));
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
    const names = view.page.columns.map((each) => each.name);
    fill(column, names, names.includes(chosen.column) ? chosen.column : column.value || names[0]);
    if (answered() && root.activeElement !== text) text.value = chosen.text;
    const { offset, matching, rows } = view.page;
    span.textContent = rows.length ? `${number(offset + 1)}–${number(offset + rows.length)} of ${number(matching)}` : "";
    back.disabled = offset === 0;
    on.disabled = offset + rows.length >= matching;
    size.value = chosen.size;
  }

  function drawRows() {
    const { columns, rows } = view.page;
    const numeric = columns.map((_, i) => rows.some((row) => row.cells[i].kind === "number"));
    grid.setAttribute("aria-label", `${view.table} at epoch ${view.epoch}`);
    grid.setAttribute("aria-rowcount", view.page.matching);
    scroll.setAttribute("aria-label", "Rows");
    keep(scroll, () => {
      header.replaceChildren(element("tr", {}, element("th", { class: "mark", scope: "col" }, element("span", { class: "hidden" }, "Change")),
        ...columns.map((each, i) => heading(each, numeric[i]))));
      body.replaceChildren(...rows.map((row, i) => line(row, i, numeric)));
    });
    empty.hidden = rows.length > 0;
    empty.textContent = view.selection.text ? "No row contains that text." : view.selection.rows === "changed" ? "Nothing changed in this epoch." : "The state is empty at this epoch.";
  }

  function heading({ name: title, key }, numeric) {
    const { order_by, descending } = view.selection;
    const sorted = order_by === title;
    return element("th", { scope: "col", class: numeric ? "number" : "", "aria-sort": sorted ? (descending ? "descending" : "ascending") : "none" },
      element("button", { type: "button", title: `Sort by ${title}`, onclick: () => act("sort", title) },
        element("span", { class: "title" }, title), key ? element("small", {}, "key") : "", element("span", { class: "way", "aria-hidden": "true" }, sorted ? (descending ? "▼" : "▲") : "")));
  }

  function line(row, i, numeric) {
    const show = () => act("key", i);
    const keys = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); show(); } };
    const chosen = view.page.chosen === i;
    return element("tr", { class: `${KINDS[row.mark] || ""} ${chosen ? "chosen" : ""}`, "aria-current": chosen ? "true" : null, tabindex: 0, title: "Show the history of this key", onclick: show, onkeydown: keys },
      mark(row.mark), ...row.cells.map((cell, c) => value(cell, numeric[c], row.was[c])));
  }

  function value(cell, numeric, was, differs = Boolean(was)) {
    const only = view.selection.rows === "changed";
    const title = was ? `was ${was.whole || was.text}` : cell.whole;
    const classes = [numeric && "number", cell.kind === "null" && "null", differs && "differs"].filter(Boolean).join(" ");
    return element("td", { class: classes, title },
      was && only ? element("s", {}, was.text) : "", element("span", { class: "text" }, cell.text), was && !only ? element("span", { class: "hidden" }, `, was ${was.text}`) : "");
  }

  function drawHistory() {
    const story = view.history;
    history.hidden = !story;
    if (!story) return void (lookedAt = "");
    const title = story.key.map(([what, cell]) => `${what} ${cell.text}`).join(", ");
    const close = element("button", { type: "button", class: "push", onclick: () => act("key", null) }, "Close");
    const now = story.changes.find((change) => change.epoch <= view.epoch);
    const numeric = story.columns.map((_, i) => story.changes.some((change) => change.cells[i] && change.cells[i].kind === "number"));
    const rows = story.changes.map((change) => element("tr", { class: `${KINDS[change.mark] || ""} ${change === now ? "now" : ""}`, "aria-current": change === now ? "true" : null },
      mark(change.mark),
      element("td", {}, element("button", { type: "button", title: "Go to this epoch", onclick: () => act("epoch", change.epoch) }, `epoch ${change.epoch}`)),
      element("td", { class: "faint" }, change.committed, change.after_gap ? " · first after a gap" : ""),
      ...(change.cells.length ? change.cells.map((cell, i) => value(cell, numeric[i], null, change.changed.includes(i))) : [element("td", { class: "null", colspan: story.columns.length || 1 }, "removed")])));
    const before = history.querySelector(".scroll")?.scrollTop || 0;
    history.replaceChildren(
      element("div", { class: "bar" }, element("strong", {}, "History of "), title, element("span", { class: "faint" }, story.more ? `the newest ${story.changes.length}; ${number(story.more)} older changes are not listed` : ""), close),
      element("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Changes of this key" },
        element("table", { "aria-label": `History of ${title}` },
          element("thead", {}, element("tr", {}, ...["", "epoch", "committed"].map((each) => element("th", { scope: "col", class: each ? "" : "mark" }, each)),
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
    for (const part of [transport, controls, scroll, facts, counts]) part.hidden = waiting;
    if (waiting) {
      name.textContent = view.name;
      table.hidden = history.hidden = true;
      empty.hidden = false;
      empty.textContent = "No epoch is captured yet. The first will show here.";
      return;
    }
    drawHead();
    drawTransport();
    drawControls();
    drawRows();
    drawHistory();
  }
}
