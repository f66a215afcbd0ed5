import { followButton, group, iconButton } from "./controls.js";
import { element, icon } from "./dom.js";
import { at, count, positionOf } from "./epochs.js";
import { strip } from "./slider_marks.js";

const BETWEEN_MOVES = 50; // milliseconds between the positions that are sent while the slider is dragged

// Which epoch is shown: a slider over all captured epochs, and buttons as of a player.
export function epochTransport({ act, answered }) {
  let view = null;
  const last = () => count(view.captured) - 1;
  const place = () => positionOf(view.captured, view.epoch);
  const go = (position) => act("epoch", at(view.captured, Math.max(0, Math.min(position, last()))));
  const first = iconButton("first", "First epoch", () => go(0));
  const previous = iconButton("previous", "Previous epoch", () => go(place() - 1));
  const play = iconButton("play", "Play", () => playOrPause());
  const next = iconButton("next", "Next epoch", () => go(place() + 1));
  const final = iconButton("last", "Last epoch", () => go(last()));
  const epoch = element("span", { class: "epoch" });
  const slider = draggedSlider(go, showPosition);
  const marks = strip();
  const follow = followButton("Show each new epoch as it is captured", () =>
    view.following ? act("epoch", view.epoch) : act("follow"),
  );
  const node = element(
    "div",
    { class: "bar transport" },
    group("Epochs", first, previous, play, next, final),
    epoch,
    element("span", { class: "track" }, marks.node, slider.node),
    follow,
  );

  function playOrPause() {
    if (last() === 0) return;
    const from = place() === last() ? 0 : place();
    act("play", view.selection.playing ? null : at(view.captured, from));
  }

  function showPosition() {
    const position = Number(slider.node.value);
    const shown = at(view.captured, position);
    epoch.textContent = `Epoch ${shown}`;
    slider.node.setAttribute("aria-valuetext", `epoch ${shown}, ${position + 1} of ${last() + 1}`);
  }

  function drawPlay() {
    const playing = view.selection.playing;
    play.replaceChildren(icon(playing ? "pause" : "play"));
    play.title = playing ? "Pause" : "Play";
    play.setAttribute("aria-label", play.title);
    play.disabled = last() === 0;
  }

  function draw(drawn) {
    view = drawn;
    node.hidden = false;
    slider.node.max = last();
    if (!slider.dragging() && answered()) slider.node.value = place();
    showPosition();
    marks.draw(view.marks);
    first.disabled = previous.disabled = place() === 0;
    next.disabled = final.disabled = place() === last();
    drawPlay();
    follow.setAttribute("aria-pressed", view.following);
  }
  return { node, draw, playOrPause, slider: slider.node };
}

// A slider that calls `show` for each position it is dragged over, and `go` for as many of them as the kernel can take.
function draggedSlider(go, show) {
  let dragging = false;
  let moved = 0;
  let pending; // a position that is not sent yet
  const node = element("input", { type: "range", min: 0, step: 1, "aria-label": "Epoch" });
  function move() {
    pending = undefined;
    moved = performance.now();
    go(Number(node.value));
  }
  node.addEventListener("input", () => {
    dragging = true;
    show();
    clearTimeout(pending);
    pending = setTimeout(move, Math.max(0, BETWEEN_MOVES - (performance.now() - moved)));
  });
  node.addEventListener("change", () => {
    dragging = false;
  });
  return { node, dragging: () => dragging || pending !== undefined };
}
