import { element } from "./dom.js";

// Plots that the kernel describes in Vega-Lite. The first plot of a page asks for the library, which all views of the
// page then share. Until it arrives, and if it cannot, the label of a plot takes its place.
const ASK_AGAIN = 5000; // milliseconds after which a view asks itself: the view that asked may be gone
const POLL = 50; // milliseconds between two looks for the library
const GONE = 20; // looks after which a plot that is not in the page stops waiting

function library(model, place) {
  if (window.vegaEmbed) return Promise.resolve(window.vegaEmbed);
  return new Promise((resolve) => {
    model.on((content) => {
      if (content.kind === "library" && !window.vegaEmbed) runScript(content.script);
    });
    let looks = 0;
    const looking = setInterval(look, POLL);
    function look() {
      if (window.vegaEmbed || (looks++ > GONE && !place.isConnected)) clearInterval(looking);
      if (window.vegaEmbed) return resolve(window.vegaEmbed);
      if (Date.now() - (window.streamstateAsked || 0) < ASK_AGAIN) return;
      window.streamstateAsked = Date.now();
      model.send({ do: "library" });
    }
    look();
  });
}

function runScript(text) {
  const script = element("script");
  script.textContent = text;
  script.nonce = document.querySelector("script[nonce]")?.nonce ?? ""; // a served page runs only its own scripts
  document.head.append(script);
  script.remove();
}

// Light text is on a dark background. Without a colour the view is no longer in the page.
export function isLight(color) {
  const [red, green, blue] = (color.match(/[\d.]+/g) ?? [0, 0, 0]).map(Number);
  return red + green + blue > 382;
}

// The names of the parameters of a specification and of its layers.
export const parametersOf = ({ params = [], layer = [] }) =>
  [...params, ...layer.flatMap((part) => part.params ?? [])].map(({ name }) => name);

// A plot in `figure`, drawn again for each chart that arrives; `chosen(parameter, value)` is called for its selections.
export function plot(model, chosen = () => {}) {
  const place = element("div", { class: "plot" });
  const figure = element("figure", { class: "chart" }, place);
  let spec = null; // the specification that is drawn, as text: if it is the same, only the data changes
  let live = null;
  let latest = null;
  let drawing = Promise.resolve();
  new ResizeObserver(() => live?.view.width(place.clientWidth).runAsync()).observe(place);

  async function build(chart) {
    const embed = await library(model, place);
    if (live) live.finalize();
    place.replaceChildren();
    place.style.minHeight = `${chart.spec.height}px`;
    const data = { name: "rows", values: chart.rows };
    const theme = isLight(getComputedStyle(place).color) ? "dark" : "light";
    live = await embed(
      place,
      { ...structuredClone(chart.spec), data, width: place.clientWidth || 400 },
      { actions: false, renderer: "svg", ast: true, defaultStyle: false, tooltip: { theme } },
    );
    spec = JSON.stringify(chart.spec);
    for (const name of parametersOf(chart.spec)) live.view.addSignalListener(name, (_, value) => chosen(name, value));
  }
  async function draw() {
    const chart = latest;
    if (spec !== JSON.stringify(chart.spec)) return build(chart);
    await live.view.data("rows", chart.rows).runAsync();
  }
  // A saved file that has no room for the library holds a picture of each plot.
  function drawPicture(svg) {
    const picture = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
    place.replaceChildren(document.importNode(picture, true));
  }
  function show(chart) {
    if (latest && JSON.stringify(chart) === JSON.stringify(latest)) return;
    latest = chart;
    figure.setAttribute("aria-label", chart.label);
    if (chart.svg) return drawPicture(chart.svg);
    drawing = drawing.then(draw);
  }
  return { figure, show };
}

// A plot with its label above it, hidden if there is no chart.
export function labelledPlot(model) {
  const title = element("h4", {});
  const { figure, show: draw } = plot(model);
  figure.setAttribute("role", "img");
  const node = element("div", { hidden: true }, title, figure);
  function show(chart) {
    node.hidden = !chart;
    if (!chart) return;
    title.textContent = chart.label;
    draw(chart);
  }
  return { node, show };
}
