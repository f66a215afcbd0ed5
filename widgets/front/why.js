import { button, iconButton, scrollArea } from "./controls.js";
import { element } from "./dom.js";
import { heading, numericColumns, valueCell } from "./tables.js";

// Why a key changed in an epoch: its values before and after, and the input rows that fell on it. Below, a line says
// why that cannot be shown here, if it cannot.
export function whyPanel({ act, root }) {
  const title = element("span", {});
  const status = element("span", { class: "faint", role: "status" });
  const [earlier, later] = [
    ["previous", "Earlier change of this key", 0],
    ["next", "Later change of this key", 1],
  ].map(([icon, label, which]) => iconButton(icon, label, () => act("why", panel.nearest[which])));
  const moves = element("span", { class: "group", role: "group", "aria-label": "Changes" }, earlier, later);
  const body = element("div", {});
  const bar = element(
    "div",
    { class: "bar" },
    element("strong", {}, "Why"),
    title,
    status,
    element("span", { class: "push" }),
    moves,
    button({ onclick: close }, "Close"),
  );
  const node = element("section", { class: "why", "aria-label": "Why the key changed", hidden: true }, bar, body);
  const note = element("div", { class: "why-not faint", hidden: true });
  let panel = null;
  let drawn = "null";
  let used = false; // what is shown from the start must not scroll the notebook
  for (const sign of ["pointerdown", "keydown"]) {
    root.addEventListener(
      sign,
      () => {
        used = true;
      },
      { once: true },
    );
  }

  node.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    close();
  });

  function close() {
    const opener = root.querySelector('button.link[aria-expanded="true"]');
    act("why", null);
    opener?.focus({ preventScroll: true });
  }

  function draw({ why, why_not }) {
    note.hidden = !why_not;
    note.textContent = why_not || "";
    moves.hidden = why_not !== "";
    const state = JSON.stringify(why ?? null);
    if (state === drawn) return; // a selection in it, and where it was scrolled to, stay
    drawn = state;
    panel = why;
    node.hidden = !why;
    if (!why) return void body.replaceChildren();
    title.textContent = `${why.key} changed in epoch ${why.epoch}`;
    status.textContent = statusOf(why);
    earlier.disabled = why.nearest[0] === null;
    later.disabled = why.nearest[1] === null;
    const problem = why.problem ? element("div", { class: "problem", role: "alert" }, why.problem) : "";
    body.replaceChildren(...[problem, ...why.tables.map(whyTable)].filter(Boolean));
    node.setAttribute("aria-busy", why.busy);
    if (used) node.scrollIntoView({ block: "nearest" });
  }
  return { nodes: [node, note], draw, close };
}

export const statusOf = ({ busy, summary }) => (busy ? "Reading the input of this epoch again…" : summary);

// The button of a change that asks why it happened, where that can be answered.
export const whyButton = ({ why, why_not }, epoch, ask, place = epoch) =>
  why_not === "" && epoch !== null
    ? button(
        {
          class: "link ask",
          "data-at": `why ${place}`,
          "aria-label": `Why did it change in epoch ${epoch}?`,
          "aria-expanded": why?.epoch === epoch,
          title: "Show the input rows behind this change",
          onclick: ask,
        },
        "Why?",
      )
    : "";

function whyTable({ title, columns, rows, differ, note }) {
  const named = rows.some((row) => row.name);
  const numeric = numericColumns(columns, rows, (row, i) => row.cells[i]);
  const absent = element("td", { class: "null", colspan: columns.length || 1 }, "absent");
  const bodyRows = rows.map(({ name, cells }) =>
    element(
      "tr",
      {},
      named ? element("th", { scope: "row", class: "faint" }, name) : "",
      ...(cells.length
        ? cells.map((cell, i) => valueCell(cell, numeric[i], differ.includes(i) && "differs"))
        : [absent]),
    ),
  );
  const grid = element(
    "table",
    { "aria-label": title },
    element(
      "thead",
      {},
      element("tr", {}, named ? element("td") : "", ...columns.map((column, i) => heading(column, numeric[i]))),
    ),
    element("tbody", {}, ...bodyRows),
  );
  const caption = element("div", { class: "caption" }, title, element("span", { class: "faint" }, note));
  return element("div", {}, caption, scrollArea(title, {}, grid));
}
