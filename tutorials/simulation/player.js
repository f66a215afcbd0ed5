// Plays a film: draws its frames as SVG, and lets the reader step, scrub, and choose what happens next.
// It knows items, frames, and the actions between them, but nothing of what they stand for.

const SVG = "http://www.w3.org/2000/svg";
const PACE = 1200; // milliseconds between the steps of a play

/** Turn `root`, which shows a still, into a player of `film`. */
export function play(root, film) {
  let graph = film.graphs[film.chosen];
  let choices = graph.path; // of the actions of each frame, the one that is taken
  let frames = passed();
  let tick = Math.min(film.at, choices.length);
  let locked = film.question !== null;
  let timer;

  const svg = make("svg", { viewBox: `0 0 ${film.width} ${film.height}`, class: "streamstate-scene", role: "img" });
  svg.style.maxWidth = `${Math.round(film.width * 1.15)}px`;
  const drawn = new Map();
  const said = make("p", { class: "said", role: "status", "aria-live": "polite" });
  const slider = make("input", { type: "range", min: 0, "aria-label": "Step" });
  const buttons = {
    first: button("|◀", "First step (Home)", () => go(0)),
    back: button("◀", "Step back (left arrow)", () => go(tick - 1)),
    play: button("Play", "Play or pause (space)", () => toggle()),
    next: button("▶", "Step (right arrow)", () => go(tick + 1)),
    last: button("▶|", "Last step (End)", () => go(last())),
    violation: button("✗ Violation", "Jump to the first broken invariant", () => go(firstBroken())),
    example: button("↺ Back to the example", "Undo your own choices", () => take(graph.path, tick)),
  };
  const bar = make("div", { class: "bar", role: "group", "aria-label": "Playback" }, ...Object.values(buttons));
  const heading = make("p", { class: "heading" });
  const list = make("ul", { class: "actions", "aria-label": "What can happen next" });
  const checks = make("ul", { class: "checks", "aria-label": "Invariants" });
  const ask = make("form", { class: "question" });
  const side = make("div", { class: "side" }, said, bar, slider, ask, heading, list, checks);
  const stage = root.querySelector(".stage");
  stage.replaceChildren(svg);
  root.querySelector(".note")?.remove();
  stage.after(side);
  if (film.parameter) side.prepend(parameter());
  if (locked) question();

  slider.addEventListener("input", () => go(Number(slider.value)));
  root.dataset.lmSuppressShortcuts = "true"; // keys belong to the player, not to the notebook
  root.addEventListener("keydown", onKey);
  show();

  /** The frames of the path. */
  function passed() {
    const found = [0];
    for (const choice of choices) found.push(graph.edges[found.at(-1)][choice][2]);
    return found;
  }

  /** The last step that may be shown: before an answer, that of the question. */
  function last() {
    return locked ? Math.min(film.at, choices.length) : choices.length;
  }

  function firstBroken() {
    return frames.findIndex((frame) => graph.broken[frame].length > 0);
  }

  function go(to) {
    pause();
    move(to);
  }

  function move(to) {
    tick = Math.max(0, Math.min(last(), to));
    show();
  }

  function toggle() {
    if (timer) return pause();
    if (tick === last()) move(0);
    timer = setInterval(() => {
      if (root.isConnected && tick < last()) move(tick + 1);
      if (!root.isConnected || tick === last()) pause();
    }, PACE);
    controls();
  }

  function pause() {
    clearInterval(timer);
    timer = undefined;
    controls();
  }

  /** Follow other choices from now on. */
  function take(others, to) {
    pause();
    choices = others;
    frames = passed();
    move(to);
  }

  function choose(position) {
    if (choices[tick] === position) go(tick + 1);
    else take([...choices.slice(0, tick), position], tick + 1);
    (list.querySelector("button") ?? buttons.back).focus();
  }

  function onKey(event) {
    const { target } = event;
    const typing = target.type === "range" || target.type === "radio" || target.type === "text";
    const keys = {
      ArrowRight: () => go(tick + 1),
      ArrowLeft: () => go(tick - 1),
      Home: () => go(0),
      End: () => go(last()),
      " ": target.tagName === "BUTTON" ? undefined : toggle,
    };
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.altKey || event.metaKey || typing) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  function show() {
    draw(graph.frames[frames[tick]].map((index) => film.items[index]));
    const broken = graph.broken[frames[tick]];
    const happened = tick ? film.texts[graph.edges[frames[tick - 1]][choices[tick - 1]][1]] : "The first state.";
    const wrong = broken.map(([name]) => `Broken: ${film.invariants[name]}.`).join(" ");
    said.replaceChildren(
      make("b", {}, `Step ${tick} of ${locked ? "?" : choices.length}.`),
      ` ${happened}`,
      wrong && make("strong", {}, ` ${wrong}`),
    );
    showActions();
    showChecks(new Map(broken));
    controls();
  }

  function controls() {
    slider.max = last();
    slider.value = tick;
    slider.setAttribute("aria-valuetext", said.textContent);
    // A button that has the focus would lose it if it were disabled.
    for (const name of ["first", "back"]) buttons[name].setAttribute("aria-disabled", tick === 0);
    for (const name of ["next", "last"]) buttons[name].setAttribute("aria-disabled", tick === last());
    buttons.play.textContent = timer ? "Pause" : "Play";
    const at = firstBroken();
    buttons.violation.hidden = at < 0 || at > last();
    buttons.violation.textContent = `✗ Violation at step ${at}`;
    buttons.example.hidden = choices.join() === graph.path.join();
  }

  function showActions() {
    const edges = locked && tick === last() ? [] : graph.edges[frames[tick]];
    const end = graph.complete ? "Nothing more can happen." : "The example ends here.";
    heading.textContent = edges.length ? "What can happen next" : locked ? "" : end;
    list.replaceChildren(
      ...edges.map(([label], position) => {
        const chosen = choices[tick] === position;
        const text = `${chosen ? "→ " : ""}${film.texts[label]}`;
        return make(
          "li",
          {},
          button(text, chosen ? "The next step of this path" : "", () => choose(position)),
        );
      }),
    );
  }

  function showChecks(broken) {
    checks.replaceChildren(
      ...film.invariants.map((name, index) => {
        const reason = broken.get(index);
        if (reason === undefined) return make("li", {}, `✓ ${name}`);
        return make("li", { class: "broken" }, make("strong", {}, `✗ ${name}: `), film.texts[reason]);
      }),
    );
  }

  /** Draw items; what has the same name in the last frame moves. */
  function draw(items) {
    const names = new Set(items.map(([name]) => name));
    for (const [name, group] of drawn) {
      if (!names.has(name)) {
        group.remove();
        drawn.delete(name);
      }
    }
    items.forEach(([name, kind, x, y, width, height, text, path], position) => {
      let group = drawn.get(name);
      if (!group) {
        group = make("g", {}, make("rect", { rx: 4 }), make("path", {}), make("text", {}));
        drawn.set(name, group);
      }
      const [rect, line, label] = group.children;
      group.setAttribute("class", kind);
      group.style.transform = `translate(${x}px, ${y}px)`;
      rect.setAttribute("width", width);
      rect.setAttribute("height", height);
      line.setAttribute("d", path);
      label.textContent = text;
      const boxed = kind.startsWith("box");
      label.setAttribute("x", boxed ? 7 : width / 2);
      label.setAttribute("y", boxed ? 14 : height / 2);
      if (svg.children[position] !== group) svg.insertBefore(group, svg.children[position] ?? null);
    });
    svg.setAttribute(
      "aria-label",
      items
        .map((item) => item[8])
        .filter(Boolean)
        .join(" "),
    );
  }

  /** A slider that chooses between graphs. */
  function parameter() {
    const { name, values } = film.parameter;
    const shown = make("output", {}, values[film.chosen]);
    const range = make("input", { type: "range", min: 0, max: values.length - 1, value: film.chosen });
    const tell = () => range.setAttribute("aria-valuetext", values[range.value]);
    range.addEventListener("input", () => {
      shown.textContent = values[range.value];
      tell();
      graph = film.graphs[range.value];
      take(graph.path, Math.min(tick, graph.path.length));
    });
    tell();
    return make("label", { class: "parameter" }, `${name} `, range, shown);
  }

  /** Ask before the rest is shown. The answer is announced as an event, for pages that keep it. */
  function question() {
    const { text, choices: offered } = film.question;
    const name = `answer-${Math.random()}`;
    const options = offered.map((value) =>
      make("label", {}, make("input", { type: "radio", name, value }), ` ${value}`),
    );
    const commit = make("button", { type: "submit" }, "Commit my answer");
    ask.replaceChildren(make("fieldset", {}, make("legend", {}, text), ...options, commit));
    ask.addEventListener("submit", (event) => {
      event.preventDefault();
      const answer = ask.querySelector(":checked")?.value;
      if (!answer) return ask.querySelector("input").focus();
      locked = false;
      ask.replaceChildren(`${text} You said: ${answer}. Now step on.`);
      root.dispatchEvent(new CustomEvent("streamstate-answer", { bubbles: true, detail: { question: text, answer } }));
      show();
      buttons.next.focus();
    });
  }
}

function button(text, title, onClick) {
  const made = make("button", { type: "button", title }, text);
  if (text.length < 3) made.setAttribute("aria-label", title);
  made.addEventListener("click", onClick);
  return made;
}

/** Make an element; texts among its children stay texts. */
function make(tag, attributes, ...children) {
  const drawing = ["svg", "g", "rect", "path", "text"].includes(tag);
  const made = drawing ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
