import { button } from "./controls.js";
import { element } from "./dom.js";
import { copyButton } from "./whole_value.js";

// What reads a row again, as a magic, in SQL and in Python: to read, and to copy.
export function rowCopies(closed) {
  const title = element("strong", {}, "Read this row again");
  const place = element("div", { class: "ways" });
  const closeButton = button({ class: "push", onclick: close }, "Close");
  const node = element(
    "section",
    { class: "whole copies", "aria-label": "Copy what reads this row again", hidden: true },
    element("div", { class: "bar" }, title, closeButton),
    place,
  );

  function close() {
    node.hidden = true;
    closed();
  }
  // `beginnings` are the texts by their names, and `endings` what follows each.
  function show(beginnings, endings) {
    const ways = Object.entries(beginnings).map(([name, beginning], i) => way(name, beginning + endings[i]));
    place.replaceChildren(...ways);
    node.hidden = false;
    place.querySelector("button").focus({ preventScroll: true });
    node.scrollIntoView({ block: "nearest" });
  }
  return { node, show, close, isOpen: () => !node.hidden };
}

function way(name, text) {
  const copy = copyButton(text, `Copy as ${name}`);
  const code = element("pre", { tabindex: 0, role: "group", "aria-label": `As ${name}` }, text);
  return element("div", { class: "way" }, copy.button, code, copy.status);
}
