import { element } from "./dom.js";

// The frame of a view: sends what a person does, says when the kernel is late or something is wrong, and draws what
// comes. A page keeps no state of its own but what is being typed or dragged: the kernel's latest drawing wins.
export function screen({ model, root, style }, name, draw) {
  let view = null;
  let asked = 0; // actions sent; a drawing answers all up to view.handled
  let patience; // the time an answer may take before the person is told that what stands here is older
  const busy = element("div", { class: "busy", role: "status", hidden: true }, "The kernel is busy. This shows what you asked for as soon as it answers.");
  const problem = element("div", { class: "problem", role: "alert", hidden: true });
  const frame = element("section", { class: name });
  root.append(element("style", {}, style), frame);

  const answered = () => view.handled >= asked;
  function wait() {
    busy.hidden = answered();
    frame.classList.toggle("stale", !answered());
  }
  function act(what, value) {
    model.send({ do: what, value, view: view.view, n: ++asked });
    clearTimeout(patience);
    patience = setTimeout(wait, 700);
  }
  model.on((content) => {
    if (content.kind === "library") return;
    problem.hidden = content.kind !== "problem";
    if (content.kind === "problem") problem.textContent = content.text;
    if (content.kind === "show") {
      view = content;
      draw(view);
      if (answered()) wait();
    }
  });
  return { act, answered, frame, busy, problem };
}
