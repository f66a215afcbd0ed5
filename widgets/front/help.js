import { button } from "./controls.js";
import { element } from "./dom.js";

const KEYS = [
  ["← → ↑ ↓", "on the slider: the previous or next epoch"],
  ["Page Up, Page Down", "on the slider: a tenth of all epochs back or forward; on a row: the previous or next page"],
  ["Home, End", "on the slider: the first or newest epoch; on a row: the first or last row"],
  ["Space", "on the slider: play or pause"],
  ["↑ ↓", "on a row: the row above or below"],
  ["Enter", "on a row: the history of its key"],
  ["c", "on a row: what reads it again, to copy"],
  ["Esc", "close the open value, reason or key history"],
  ["/", "go to the filter"],
  ["?", "show this list"],
];

// A dialog that lists the keyboard shortcuts, and the button that opens it.
export function help() {
  const close = button({ autofocus: true, onclick: () => dialog.close() }, "Close");
  const rows = KEYS.map(([keys, effect]) =>
    element("tr", {}, element("th", { scope: "row" }, keys), element("td", {}, effect)),
  );
  const dialog = element(
    "dialog",
    { "aria-labelledby": "help-title" },
    element("h2", { id: "help-title" }, "Keys"),
    element("table", {}, element("tbody", {}, ...rows)),
    element(
      "p",
      {},
      "Click a row to see the history of its key, ⋯ or double-click a cell to see its whole value, and the sign at its " +
        "end to copy what reads it again.",
    ),
    close,
  );
  const open = () => dialog.open || dialog.showModal();
  const opener = button(
    { class: "help", "aria-label": "Help: keys", title: "Keys (?)", "aria-haspopup": "dialog", onclick: open },
    "?",
  );
  return { button: opener, dialog, open };
}
