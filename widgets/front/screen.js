import { element } from "./dom.js";

const PATIENCE = 700; // milliseconds an answer may take before the view says that it shows an older state

// Numbers the actions of a page. A drawing answers all actions up to the number in its `handled`.
export function requests(send) {
  let sent = 0;
  let handled = 0;
  return {
    act: (action, value, view) => send({ do: action, value, view, n: ++sent }),
    drawn: (content) => {
      handled = content.handled;
    },
    answered: () => handled >= sent,
  };
}

// The frame of a view: sends what a person does, says when the kernel is busy or something went wrong, and draws what
// arrives. A page keeps no state except what is being typed or dragged: the kernel's latest drawing wins.
export function screen({ model, root, style }, name, draw) {
  let view = null;
  let waiting;
  const busy = element(
    "div",
    { class: "busy", role: "status", hidden: true },
    "The kernel is busy. The view will update when it answers.",
  );
  const problem = element("div", { class: "problem", role: "alert", hidden: true });
  const frame = element("section", { class: name });
  root.append(element("style", {}, style), frame);
  const numbered = requests((content) => model.send(content));

  function showWhetherBusy() {
    busy.hidden = numbered.answered();
    frame.classList.toggle("stale", !numbered.answered());
  }
  function act(action, value) {
    numbered.act(action, value, view.view);
    clearTimeout(waiting);
    waiting = setTimeout(showWhetherBusy, PATIENCE);
  }
  model.on((content) => {
    if (content.kind === "library") return;
    problem.hidden = content.kind !== "problem";
    if (content.kind === "problem") problem.textContent = content.text;
    if (content.kind === "show") {
      view = content;
      numbered.drawn(content);
      draw(view);
      if (numbered.answered()) showWhetherBusy();
    }
  });
  return { act, answered: numbered.answered, frame, busy, problem };
}
