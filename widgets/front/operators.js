import { element, keep } from "./dom.js";

// The operators of a query as boxes in layers, from its sources down to its sink. `act("table", name)` hears a click on
// a state table; without it the tables are named only.
export function operatorGraph(act = null) {
  let shown = "";
  const note = element("p", { class: "faint note" });
  const boxes = element("ul", { class: "boxes" });
  const scroll = element("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Operators, from sources to sink" }, boxes);

  function draw(operators, chosen) {
    const { boxes: all, note: told, linked } = operators;
    note.textContent = told;
    const same = JSON.stringify([operators, chosen]);
    if (same === shown) return;
    shown = same;
    boxes.className = linked ? "boxes linked" : "boxes";
    const columns = Math.max(...all.map((each) => each.column + each.columns - 1));
    boxes.style.gridTemplateColumns = `repeat(${columns}, minmax(200px, 1fr))`;
    keep(boxes, () => boxes.replaceChildren(...all.map((each) => box(each, chosen))));
  }

  function box({ label, detail, whole, kind, rows, bytes, time, state: held, tables, inputs, feeds, row, column, columns }, chosen) {
    const amounts = [rows, bytes, time].filter(Boolean).map((each) => element("span", {}, each));
    const named = (each) => act ? element("button", { type: "button", "aria-pressed": each === chosen ? "true" : "false",
      title: `Show how ${each} is spread`, onclick: () => act("table", each) }, each) : element("code", {}, each);
    const node = element("li", { class: `box ${kind}${feeds ? " feeds" : ""}${inputs.length ? " fed" : ""}` },
      element("span", { class: "label", title: whole }, label), element("span", { class: "detail faint", title: whole }, detail),
      element("span", { class: "amounts" }, ...amounts),
      held ? element("span", { class: "held" }, held) : "", tables.length ? element("span", { class: "tables" }, ...tables.map(named)) : "",
      feeds ? element("span", { class: "hidden" }, `, feeds ${feeds}`) : "");
    node.style.gridRow = row;
    node.style.gridColumn = `${column} / span ${columns}`;
    return node;
  }

  return { parts: [scroll, note], draw };
}
