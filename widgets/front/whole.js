import { element, number } from "./dom.js";

// One cell's whole value, to be read and copied.
export function wholeValue(close) {
  const node = element("section", { class: "whole", "aria-label": "One whole value", hidden: true });
  let shown = "";
  return {
    node,
    draw(value) {
      const state = value ? JSON.stringify([value.column, value.key, value.text]) : "";
      if (state === shown) return; // what is selected in it stays
      const fresh = !shown && state;
      shown = state;
      node.hidden = !value;
      if (!value) return void node.replaceChildren();
      const said = element("span", { class: "faint", role: "status" });
      const copy = element("button", { type: "button", class: "push", onclick: async () => { said.textContent = (await copied(value.text)) ? "Copied." : "The browser did not allow it: select the text and copy it."; } }, "Copy");
      const size = value.text.length < value.size ? `the first ${number(value.text.length)} of ${number(value.size)} characters` : `${number(value.size)} character${value.size === 1 ? "" : "s"}`;
      node.replaceChildren(
        element("div", { class: "bar" }, element("strong", {}, value.column), " of ", element("span", { dir: "auto" }, value.key), element("span", { class: "faint" }, size), said, copy,
          element("button", { type: "button", onclick: close }, "Close")),
        element("pre", { dir: "auto", tabindex: 0, role: "group", "aria-label": `Value of ${value.column}` }, value.text));
      if (fresh) copy.focus({ preventScroll: true });
    },
  };
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // not a secure page, or not allowed
  }
}
