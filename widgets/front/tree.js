import { button, pushRight } from "./controls.js";
import { classes, element, svgElement } from "./dom.js";
import { number } from "./words.js";

const ACROSS = 26; // pixels between two epochs
const DOWN = 30; // pixels between two branches
const RADIUS = 13; // half of a dot's button
const DOT_NOTES = { epoch: "", start: ", where it begins", unknown: ", not in the session’s store" };

// Where the branches are drawn: lines along and between them, dots for their epochs, and numbers below.
export function treeLayout(tree) {
  const x = (epoch) => (epoch - tree.first + 0.5) * ACROSS;
  const y = (lane) => (lane + 0.5) * DOWN;
  const [width, height] = [(tree.last - tree.first + 1) * ACROSS, tree.lanes.length * DOWN + 20];
  const lines = [];
  for (const [i, { dots, parent }] of tree.lanes.entries()) {
    if (!dots.length) continue;
    const [start, kind] = dots[0];
    lines.push(`M${x(start)} ${y(i)}H${x(dots.at(-1)[0])}`);
    if (parent !== null && kind === "start") lines.push(`M${x(start)} ${y(parent)}V${y(i)}`);
  }
  const every = tree.last - tree.first < 12 ? 1 : 5;
  const numbers = [];
  for (let epoch = Math.ceil(tree.first / every) * every; epoch <= tree.last; epoch += every) numbers.push(epoch);
  return { x, y, width, height, lines, numbers };
}

// The dot that an arrow key leads to from a place in a lane; `lanes` are the epochs of each.
export function neighbour(lanes, lane, place, key) {
  const along = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: lanes[lane].length - 1 }[key];
  if (along !== undefined) return along in lanes[lane] ? [lane, along] : [lane, place];
  const step = { ArrowDown: 1, ArrowUp: -1 }[key];
  if (!step) return null;
  let to = lane + step;
  while (lanes[to]?.length === 0) to += step;
  if (!lanes[to]) return [lane, place];
  const distance = (epoch) => Math.abs(epoch - lanes[lane][place]);
  const nearest = lanes[to].reduce((best, epoch, i) => (distance(epoch) < distance(lanes[to][best]) ? i : best), 0);
  return [to, nearest];
}

// Branches as lanes, the original on top; each epoch is a dot that can be chosen. Tab stops once: arrow keys move
// between the dots, Home and End to the ends of a branch.
export function branchTree(act) {
  const names = element("div", { class: "lanes" });
  const surface = element("div", { class: "dots", role: "group", "aria-label": "Epochs of the branches" });
  const scroll = element("div", { class: "scroll" }, surface);
  const span = element("span", { class: "faint" });
  const earlier = button({ onclick: () => act("window", "earlier") }, "Earlier");
  const later = button({ onclick: () => act("window", "later") }, "Later");
  const foot = element("div", { class: "bar windows" }, span, pushRight(), earlier, later);
  const node = element("div", { class: "tree" }, element("div", { class: "lines" }, names, scroll), foot);
  let drawn = "";
  let scrolledTo = "";
  let dots = []; // buttons by lane, ascending by epoch
  surface.addEventListener("keydown", (event) => moveFocus(event, dots));

  function draw(view) {
    const { tree, look, name, epoch } = view;
    const state = JSON.stringify([tree, look.branch, look.epoch, name, epoch]);
    if (state === drawn) return;
    drawn = state;
    const layout = treeLayout(tree);
    drawDots(view, layout);
    names.replaceChildren(...tree.lanes.map((lane) => laneName(lane, lane.name === name)));
    drawWindow(tree);
    const place = `${look.branch} ${look.epoch}`;
    if (place !== scrolledTo) scroll.scrollLeft = Math.max(0, layout.x(look.epoch) - scroll.clientWidth * 0.7);
    scrolledTo = place;
  }

  function drawDots(view, layout) {
    const active = surface.getRootNode().activeElement;
    const focused = active && surface.contains(active) ? active.dataset : null;
    dots = view.tree.lanes.map((lane, i) => lane.dots.map((dot) => dotButton(dot, lane, layout.y(i), view, layout)));
    surface.style.width = `${layout.width}px`;
    surface.style.height = `${layout.height}px`;
    surface.replaceChildren(linesAndNumbers(layout), ...dots.flat());
    const all = dots.flat();
    const find = (test) => all.find(test);
    const same = focused && find(({ dataset }) => dataset.branch === focused.branch && dataset.epoch === focused.epoch);
    const entry =
      same || find((dot) => dot.classList.contains("seen")) || find((dot) => dot.classList.contains("here")) || all[0];
    if (entry) entry.tabIndex = 0;
    if (same) same.focus({ preventScroll: true });
  }

  function dotButton([epoch, kind], lane, y, { look, name, epoch: current }, { x }) {
    const here = lane.name === name && epoch === current;
    const seen = lane.name === look.branch && epoch === look.epoch;
    const attributes = {
      class: classes("dot", `is-${kind}`, here && "here", seen && "seen"),
      tabindex: -1,
      "data-branch": lane.name,
      "data-epoch": epoch,
      "aria-label": `${lane.name}, epoch ${epoch}${DOT_NOTES[kind]}${here ? ", the current position" : ""}`,
      "aria-pressed": String(seen),
      title: `Epoch ${number(epoch)} of ${lane.name}${DOT_NOTES[kind]}`,
      onclick: () => act("look", [lane.name, epoch]),
    };
    const node = button(attributes);
    node.style.left = `${x(epoch) - RADIUS}px`;
    node.style.top = `${y - RADIUS}px`;
    return node;
  }

  function drawWindow({ first, last, oldest, newest, left_out: hidden }) {
    const more = hidden ? `; ${number(hidden)} more branches are not drawn` : "";
    span.textContent = `Epochs ${number(first)}–${number(last)} of ${number(oldest)}–${number(newest)}${more}`;
    earlier.hidden = later.hidden = first === oldest && last === newest;
    earlier.disabled = first === oldest;
    later.disabled = last === newest;
  }
  return { node, draw };
}

function moveFocus(event, dots) {
  const lane = dots.findIndex((line) => line.includes(event.target));
  if (lane < 0) return;
  const choose = event.key === "Enter" || event.key === " "; // JupyterLab would start to edit the cell
  const lanes = dots.map((line) => line.map((dot) => Number(dot.dataset.epoch)));
  const next = neighbour(lanes, lane, dots[lane].indexOf(event.target), event.key);
  if (!choose && !next) return;
  event.preventDefault();
  event.stopPropagation();
  if (choose) return event.target.click();
  const target = dots[next[0]][next[1]];
  for (const dot of dots.flat()) dot.tabIndex = dot === target ? 0 : -1;
  target.focus();
}

const laneName = ({ name, description: title }, current) =>
  element("div", { class: classes("lane", current && "current"), title }, name);

function linesAndNumbers({ x, width, height, lines, numbers }) {
  const svg = svgElement("svg", { width, height, "aria-hidden": "true" });
  for (const d of lines) svg.append(svgElement("path", { d }));
  for (const epoch of numbers) {
    const label = svgElement("text", { x: x(epoch), y: height - 4 });
    label.textContent = number(epoch);
    svg.append(label);
  }
  return svg;
}
