import { element } from "./dom.js";
import { screen } from "./screen.js";

// A slider that sets a shared variable: where it is released, that value is set.
export function render({ model, root, style }) {
  const { act, answered, frame, busy, problem } = screen({ model, root, style }, "screen slider", draw);
  let decimals = 0;
  let dragging = false;
  const name = element("label", { class: "name", for: "value" });
  const least = element("span", { class: "faint", "aria-hidden": "true" });
  const most = element("span", { class: "faint", "aria-hidden": "true" });
  const value = element("output", { for: "value" });
  const handle = element("input", { type: "range", id: "value", oninput: drag, onchange: release });
  const sentence = element("div", { class: "sentence", role: "status" });
  frame.append(element("div", { class: "bar" }, name, least, handle, most, value), busy, problem, sentence);

  const textOf = (number) =>
    number.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });

  function drag() {
    dragging = true;
    value.textContent = textOf(Number(handle.value));
  }
  function release() {
    dragging = false;
    act("set", Number(handle.value));
  }
  function draw(view) {
    decimals = view.decimals;
    frame.setAttribute("aria-label", `Slider of ${view.name}`);
    name.textContent = view.name;
    least.textContent = textOf(view.least);
    most.textContent = textOf(view.most);
    Object.assign(handle, { min: view.least, max: view.most, step: view.step });
    if (!dragging && answered()) handle.value = view.value;
    value.textContent = textOf(Number(handle.value));
    sentence.textContent = view.sentence;
  }
}
