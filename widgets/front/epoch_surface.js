import { element } from "./dom.js";

const DRAG = 4; // pixels after which a press is no longer a click

// The layer above the plots of the timeline: a click selects an epoch, a drag an interval. `pointed` is called when
// another epoch is under the pointer.
export function epochSurface(act, pointed) {
  let view = null;
  let points = [];
  const band = element("div", { class: "band", hidden: true });
  const rule = element("div", { class: "rule", hidden: true });
  const node = element("div", { class: "layer surface", "aria-hidden": "true" }, band, rule);
  const place = (epoch) => placeOn(view.axis, epoch);

  function pointAt(event) {
    const box = node.getBoundingClientRect();
    const { from, to } = view.axis;
    return nearestPoint(points, from + ((event.clientX - box.left) / box.width) * (to - from));
  }

  // Lays a node over a run of epochs.
  function over(target, [first, last]) {
    target.style.left = `${100 * place(first - 0.5)}%`;
    target.style.width = `${100 * (place(last + 0.5) - place(first - 0.5))}%`;
    return target;
  }

  const shownSelection = () => (view.selected && !view.selected.outside ? view.selected : null);

  // The point under the pointer, or else the one that is selected, or else the newest.
  function point() {
    const epoch = pointer.under() ?? shownSelection()?.to;
    const found = points.find(({ first, last }) => first <= epoch && epoch <= last);
    return found ?? points.findLast(({ captured }) => captured) ?? points.at(-1);
  }

  function drawMarks() {
    const selected = shownSelection();
    const ends = pointer.dragged() ?? (selected && [selected.from, selected.to]);
    band.hidden = !ends;
    if (ends) over(band, ends);
    rule.hidden = pointer.under() === null;
    if (rule.hidden) return;
    const { first, last } = point();
    rule.style.left = `${100 * place((first + last) / 2)}%`;
  }

  const pointer = trackPointer(node, pointAt, act, () => {
    drawMarks();
    pointed();
  });

  function draw(drawn, drawnPoints) {
    view = drawn;
    points = drawnPoints;
    drawMarks();
  }
  return { node, draw, over, point };
}

// Which epoch is under the pointer, and which interval it drags over.
function trackPointer(node, pointAt, act, moved) {
  let under = null;
  let drag = null; // the point where the drag starts, and the point under the pointer
  node.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    const start = pointAt(event);
    drag = { x: event.clientX, start, end: start, moved: false };
    node.setPointerCapture(event.pointerId);
  });
  node.addEventListener("pointermove", (event) => {
    const point = pointAt(event);
    under = point.last;
    if (drag) {
      drag.end = point;
      drag.moved ||= Math.abs(event.clientX - drag.x) > DRAG;
    }
    moved();
  });
  node.addEventListener("pointerup", (event) => {
    if (!drag) return;
    const { start, moved: dragged } = drag;
    const end = pointAt(event);
    drag = null;
    if (dragged) act("between", interval(start, end));
    else act("epoch", end.last);
  });
  node.addEventListener("pointercancel", () => {
    drag = null;
    moved();
  });
  node.addEventListener("pointerleave", () => {
    under = null;
    moved();
  });
  return { under: () => under, dragged: () => (drag?.moved ? interval(drag.start, drag.end) : null) };
}

// Where an epoch is on the axis, from 0 to 1.
export const placeOn = ({ from, to }, epoch) => Math.max(0, Math.min(1, (epoch - from) / (to - from)));

export const interval = (start, end) => [Math.min(start.first, end.first), Math.max(start.last, end.last)];

// The point nearest to a place on the axis. The points are in ascending order and may span several epochs.
export function nearestPoint(points, epoch) {
  let low = 0;
  let high = points.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle].last + 0.5 < epoch) low = middle + 1;
    else high = middle;
  }
  const before = points[low - 1];
  return before && epoch - before.last < points[low].first - epoch ? before : points[low];
}
