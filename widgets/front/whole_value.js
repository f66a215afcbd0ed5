import { button } from "./controls.js";
import { element } from "./dom.js";
import { number, plural } from "./words.js";

// The whole value of one cell, to read and to copy.
export function wholeValue(close) {
  const node = element("section", { class: "whole", "aria-label": "One whole value", hidden: true });
  let drawn = "";

  function draw(value) {
    const state = value ? JSON.stringify([value.column, value.key, value.text]) : "";
    if (state === drawn) return; // a selection inside it stays
    const opened = !drawn && state;
    drawn = state;
    node.hidden = !value;
    if (!value) return void node.replaceChildren();
    const copy = copyButton(value.text, "Copy", { class: "push" });
    node.replaceChildren(bar(value, copy), text(value));
    if (opened) copy.button.focus({ preventScroll: true });
  }

  const bar = ({ column, key, text, size }, copy) =>
    element(
      "div",
      { class: "bar" },
      element("strong", {}, column),
      " of ",
      element("span", { dir: "auto" }, key),
      element("span", { class: "faint" }, lengthOf(text, size)),
      copy.status,
      copy.button,
      button({ onclick: close }, "Close"),
    );
  const text = (value) =>
    element("pre", { dir: "auto", tabindex: 0, role: "group", "aria-label": `Value of ${value.column}` }, value.text);
  return { node, draw };
}

// How much of a value is shown; `size` is the length of the whole value.
export const lengthOf = (text, size) =>
  text.length < size ? `the first ${number(text.length)} of ${number(size)} characters` : plural(size, "character");

export function copyButton(text, label = "Copy", attributes = {}) {
  const status = element("span", { class: "faint", role: "status" });
  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
      status.textContent = "Copied.";
    } catch {
      status.textContent = "The browser does not allow copying here. Select the text and copy it."; // no secure context
    }
  }
  return { status, button: button({ ...attributes, onclick: copy }, label) };
}
