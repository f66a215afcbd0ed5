import { element } from "./dom.js";

const KEYS = [
  ["← → ↑ ↓", "on the slider: one epoch back or on"],
  ["Page Up, Page Down", "on the slider: a tenth of all epochs back or on; on a row: the page before or after"],
  ["Home, End", "on the slider: the first or the newest epoch; on a row: the first or the last row"],
  ["Space", "on the slider: play or pause"],
  ["↑ ↓", "on a row: the row above or below"],
  ["Enter", "on a row: the life of its key"],
  ["Esc", "close the value or the key’s life that is open"],
  ["/", "go to the filter"],
  ["?", "this list"],
];

// What the keys do, as a dialog, and the button that opens it.
export function help() {
  const close = element("button", { type: "button", autofocus: true, onclick: () => dialog.close() }, "Close");
  const rows = KEYS.map(([keys, what]) => element("tr", {}, element("th", { scope: "row" }, keys), element("td", {}, what)));
  const dialog = element("dialog", { "aria-labelledby": "help-title" },
    element("h2", { id: "help-title" }, "Keys"),
    element("table", {}, element("tbody", {}, ...rows)),
    element("p", {}, "A click on a row shows the life of its key. ⋯ in a cell, or a double click, shows its whole value."), close);
  const open = () => dialog.open || dialog.showModal();
  const button = element("button", { type: "button", class: "help", "aria-label": "Help: keys", title: "Keys (?)", "aria-haspopup": "dialog", onclick: open }, "?");
  return { button, dialog, open };
}
