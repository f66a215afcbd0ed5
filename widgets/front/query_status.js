import { element } from "./dom.js";
import { screen } from "./screen.js";

// The status of a query in one line, with the sign of its state.
export function render({ model, root, style }) {
  const { frame, busy, problem } = screen({ model, root, style }, "query-status", draw);
  const sign = element("span", { "aria-hidden": "true" });
  const name = element("b");
  const state = element("span", { role: "status" }); // the rest changes with every epoch, and is not read aloud
  const rest = element("span");
  frame.append(element("p", {}, sign, " ", name, " ", state, rest), busy, problem);

  function draw(view) {
    frame.setAttribute("aria-label", `Status of ${view.name}`);
    sign.textContent = view.sign;
    sign.style.color = view.colour;
    name.textContent = view.name;
    const text = `is ${view.state}`;
    if (state.textContent !== text) state.textContent = text;
    rest.textContent = view.rest;
  }
}
