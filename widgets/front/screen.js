import { element } from "./dom.js";

// Milliseconds that an answer may take before the view fades, because it shows an older state, and before it says why.
const SOON = 80;
const PATIENCE = 700;

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
  let fading;
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

  function fade(stale) {
    clearTimeout(fading);
    fading = undefined;
    frame.classList.toggle("stale", stale);
    frame.setAttribute("aria-busy", stale);
  }
  function act(action, value) {
    numbered.act(action, value, view.view);
    fading ??= setTimeout(fade, SOON, true);
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      busy.hidden = numbered.answered();
    }, PATIENCE);
  }
  model.on((content) => {
    if (content.kind === "library") return;
    problem.hidden = content.kind !== "problem";
    if (content.kind === "problem") problem.textContent = content.text;
    if (content.kind === "show") {
      view = content;
      numbered.drawn(content);
      draw(view);
      fade(false);
      if (numbered.answered()) busy.hidden = true;
      else fading = setTimeout(fade, SOON, true);
    }
  });
  return { act, answered: numbered.answered, frame, busy, problem };
}
