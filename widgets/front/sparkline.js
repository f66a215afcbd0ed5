import { svgElement } from "./dom.js";

const [WIDTH, HEIGHT, MARGIN] = [80, 20, 2];

// Where the numbers of a sparkline are drawn; null if a number is missing.
export function sparklinePoints(values) {
  const known = values.filter((value) => value !== null);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const x = (i) => MARGIN + ((WIDTH - 2 * MARGIN) * i) / (values.length - 1);
  const y = (value) =>
    high === low ? HEIGHT / 2 : HEIGHT - MARGIN - ((HEIGHT - 2 * MARGIN) * (value - low)) / (high - low);
  return values.map((value, i) => (value === null ? null : [x(i), y(value)]));
}

// The path through the points, interrupted where one is missing.
export function sparklinePath(points) {
  const commands = points.map((point, i) => {
    if (point === null) return "";
    return `${points[i - 1] ? "L" : "M"}${point.map((length) => length.toFixed(1)).join(" ")}`;
  });
  return commands.join("");
}

// A small line of numbers, or nothing if fewer than two are known.
export function sparkline(values, label) {
  if (values.filter((value) => value !== null).length < 2) return "";
  const points = sparklinePoints(values);
  const [cx, cy] = points.findLast((point) => point !== null);
  const svg = svgElement("svg", {
    class: "sparkline",
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    role: "img",
    "aria-label": label,
  });
  svg.append(svgElement("path", { d: sparklinePath(points) }), svgElement("circle", { cx, cy, r: 2 }));
  return svg;
}
