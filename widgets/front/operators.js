import { button, scrollArea } from "./controls.js";
import { classes, element, keepFocus } from "./dom.js";

// The operators of a query as boxes in layers, from its sources down to its sink. Where `act` is given, a click on a
// state table calls `act("table", name)`; otherwise the tables are only named.
export function operatorGraph(act = null) {
  let drawn = "";
  const note = element("p", { class: "faint note" });
  const boxes = element("ul", { class: "boxes" });
  const scroll = scrollArea("Operators, from sources to sink", {}, boxes);

  function draw(operators, chosen) {
    note.textContent = operators.note;
    const state = JSON.stringify([operators, chosen]);
    if (state === drawn) return;
    drawn = state;
    boxes.className = classes("boxes", operators.linked && "linked");
    const columns = Math.max(...operators.boxes.map((box) => box.column + box.columns - 1));
    boxes.style.gridTemplateColumns = `repeat(${columns}, minmax(200px, 1fr))`;
    keepFocus(boxes, () => boxes.replaceChildren(...operators.boxes.map((box) => operatorBox(box, chosen, act))));
  }
  return { parts: [scroll, note], draw };
}

function operatorBox(box, chosen, act) {
  const amounts = [box.rows, box.bytes, box.time].filter(Boolean).map((amount) => element("span", {}, amount));
  const tables = box.tables.map((table) => tableName(table, table === chosen, act));
  const node = element(
    "li",
    { class: classes("box", box.kind, box.feeds && "feeds", box.inputs.length && "fed") },
    element("span", { class: "label", title: box.whole }, box.label),
    element("span", { class: "detail faint", title: box.whole }, box.detail),
    element("span", { class: "amounts" }, ...amounts),
    box.state ? element("span", { class: "held" }, box.state) : "",
    tables.length ? element("span", { class: "tables" }, ...tables) : "",
    box.feeds ? element("span", { class: "hidden" }, `, feeds ${box.feeds}`) : "",
  );
  node.style.gridRow = box.row;
  node.style.gridColumn = `${box.column} / span ${box.columns}`;
  return node;
}

function tableName(table, chosen, act) {
  if (!act) return element("code", {}, table);
  const title = `Show how ${table} is spread over the partitions`;
  return button({ "aria-pressed": String(chosen), title, onclick: () => act("table", table) }, table);
}
