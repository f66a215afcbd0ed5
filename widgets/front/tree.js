import { element, number } from "./dom.js";

const SPACE = "http://www.w3.org/2000/svg";
const ACROSS = 26; // pixels between two epochs
const DOWN = 30; // between two branches
const SAYS = { epoch: "", start: ", where it begins", unknown: ", not in the session’s store" };

function drawn(tag, attributes) {
  const node = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

// A small line of numbers; nulls break it.
export function sparkline(values, label) {
  const known = values.filter((each) => each !== null);
  if (known.length < 2) return "";
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const svg = drawn("svg", { class: "sparkline", viewBox: "0 0 80 20", role: "img", "aria-label": label });
  const place = (value, i) => [2 + (76 * i) / (values.length - 1), high === low ? 10 : 18 - (16 * (value - low)) / (high - low)];
  let path = "";
  values.forEach((value, i) => { if (value !== null) path += `${values[i - 1] === null || !path ? "M" : "L"}${place(value, i).map((each) => each.toFixed(1)).join(" ")}`; });
  const last = values.findLastIndex((each) => each !== null);
  const [x, y] = place(values[last], last);
  svg.append(drawn("path", { d: path }), drawn("circle", { cx: x, cy: y, r: 2 }));
  return svg;
}

// Branches as lanes, the original on top; each epoch is a dot that can be chosen. One stop for Tab: arrows move between
// dots, Home and End to the ends of a branch.
export function treeOf(act) {
  const names = element("div", { class: "lanes" });
  const surface = element("div", { class: "dots", role: "group", "aria-label": "Epochs of the branches" });
  const scroll = element("div", { class: "scroll" }, surface);
  const span = element("span", { class: "faint" });
  const earlier = element("button", { type: "button", onclick: () => act("window", "earlier") }, "Earlier");
  const later = element("button", { type: "button", onclick: () => act("window", "later") }, "Later");
  const foot = element("div", { class: "bar windows" }, span, element("span", { class: "push" }), earlier, later);
  const node = element("div", { class: "tree" }, element("div", { class: "lines" }, names, scroll), foot);
  let shown = "";
  let scrolled = "";
  let dots = []; // by lane: buttons, ascending by epoch

  surface.addEventListener("keydown", (event) => {
    const lane = dots.findIndex((line) => line.includes(event.target));
    if (lane < 0) return;
    const at = dots[lane].indexOf(event.target);
    const epoch = Number(event.target.dataset.epoch);
    const near = (line) => line && line.reduce((best, each) => (Math.abs(each.dataset.epoch - epoch) < Math.abs(best.dataset.epoch - epoch) ? each : best));
    const lines = dots.map((line) => line.length ? line : null);
    const next = {
      ArrowRight: () => dots[lane][at + 1], ArrowLeft: () => dots[lane][at - 1], Home: () => dots[lane][0], End: () => dots[lane].at(-1),
      ArrowDown: () => near(lines.slice(lane + 1).find(Boolean)), ArrowUp: () => near(lines.slice(0, lane).reverse().find(Boolean)),
    }[event.key];
    if (event.key === "Enter" || event.key === " ") { // JupyterLab would begin to edit the cell
      event.preventDefault();
      event.stopPropagation();
      event.target.click();
    }
    if (!next) return;
    event.preventDefault();
    event.stopPropagation();
    rove(next() || event.target);
  });

  function rove(button) {
    for (const each of dots.flat()) each.tabIndex = each === button ? 0 : -1;
    button.focus();
  }

  function draw(view) {
    const { tree, look, name, epoch } = view;
    const same = JSON.stringify([tree, look.branch, look.epoch, name, epoch]);
    if (same === shown) return;
    shown = same;
    const focused = surface.getRootNode().activeElement;
    const [branch, at] = focused && surface.contains(focused) ? [focused.dataset.branch, focused.dataset.epoch] : [];
    const x = (one) => (one - tree.first + 0.5) * ACROSS;
    const y = (lane) => (lane + 0.5) * DOWN;
    const [wide, high] = [(tree.last - tree.first + 1) * ACROSS, tree.lanes.length * DOWN + 20];
    const svg = drawn("svg", { width: wide, height: high, "aria-hidden": "true" });
    dots = tree.lanes.map((lane, i) => {
      if (lane.dots.length) svg.append(drawn("path", { d: `M${x(lane.dots[0][0])} ${y(i)}H${x(lane.dots.at(-1)[0])}` }));
      if (lane.parent !== null && lane.dots.length && lane.dots[0][1] === "start") svg.append(drawn("path", { d: `M${x(lane.dots[0][0])} ${y(lane.parent)}V${y(i)}` }));
      return lane.dots.map(([one, kind]) => dot(lane, one, kind));
    });
    const every = tree.last - tree.first < 12 ? 1 : 5;
    const numbers = [];
    for (let one = tree.first; one <= tree.last; one++) {
      if (one % every) continue;
      const label = drawn("text", { x: x(one), y: high - 4 });
      label.textContent = number(one);
      numbers.push(label);
    }
    svg.append(...numbers);

    function dot(lane, one, kind) {
      const here = lane.name === name && one === epoch;
      const seen = lane.name === look.branch && one === look.epoch;
      const button = element("button", { type: "button", class: `dot is-${kind}${here ? " here" : ""}${seen ? " seen" : ""}`, tabindex: -1, "data-branch": lane.name, "data-epoch": one,
        "aria-label": `${lane.name}, epoch ${one}${SAYS[kind]}${here ? ", where the session stands" : ""}`, "aria-pressed": String(seen), title: `Epoch ${number(one)} of ${lane.name}${SAYS[kind]}`,
        onclick: () => act("look", [lane.name, one]) });
      button.style.left = `${x(one) - 13}px`;
      button.style.top = `${y(tree.lanes.indexOf(lane)) - 13}px`;
      return button;
    }

    surface.style.width = `${wide}px`;
    surface.style.height = `${high}px`;
    surface.replaceChildren(svg, ...dots.flat());
    names.replaceChildren(...tree.lanes.map((lane) => element("div", { class: lane.name === name ? "lane current" : "lane", title: lane.told }, lane.name)));
    const every_dot = dots.flat();
    const same_dot = branch !== undefined && every_dot.find((each) => each.dataset.branch === branch && each.dataset.epoch === at);
    const entry = same_dot || every_dot.find((each) => each.classList.contains("seen")) || every_dot.find((each) => each.classList.contains("here")) || every_dot[0];
    if (entry) entry.tabIndex = 0;
    if (same_dot) same_dot.focus({ preventScroll: true });
    const cut = tree.left_out ? `; ${number(tree.left_out)} more branches are not drawn` : "";
    span.textContent = `Epochs ${number(tree.first)}–${number(tree.last)} of ${number(tree.oldest)}–${number(tree.newest)}${cut}`;
    earlier.hidden = later.hidden = tree.first === tree.oldest && tree.last === tree.newest;
    earlier.disabled = tree.first === tree.oldest;
    later.disabled = tree.last === tree.newest;
    const place = `${look.branch} ${look.epoch}`;
    if (place !== scrolled) scroll.scrollLeft = Math.max(0, x(look.epoch) - scroll.clientWidth * 0.7);
    scrolled = place;
  }

  return { node, draw };
}
