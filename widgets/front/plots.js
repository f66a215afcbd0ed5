import { element } from "./dom.js";

// Plots that the kernel describes in Vega-Lite. The library is asked for when the first plot of a page is drawn, and
// kept for all of its views; until it is there, and where it cannot come, the plot's label stands in its place.
const PATIENCE = 5000; // milliseconds after which a view asks itself: the one that asked may be gone

function library(model, place) {
  if (window.vegaEmbed) return Promise.resolve(window.vegaEmbed);
  return new Promise((resolve) => {
    model.on((content) => {
      if (content.kind !== "library" || window.vegaEmbed) return;
      const script = element("script");
      script.textContent = content.script;
      document.head.append(script);
      script.remove();
    });
    let waited = 0;
    const looks = setInterval(look, 50);
    function look() {
      if (window.vegaEmbed || (waited++ > 20 && !place.isConnected)) clearInterval(looks);
      if (window.vegaEmbed) return resolve(window.vegaEmbed);
      if (Date.now() - (window.streamstateAsked || 0) < PATIENCE) return;
      window.streamstateAsked = Date.now();
      model.send({ do: "library" });
    }
    look();
  });
}

const dark = (node) => {
  const [red, green, blue] = (getComputedStyle(node).color.match(/[\d.]+/g) || [0, 0, 0]).map(Number); // no colour once the view is gone
  return red + green + blue > 382; // light ink is on dark paper
};

// A plot in `figure`, drawn again for each chart that comes; `chosen(parameter, value)` hears its selections.
export function plot(model, chosen = () => {}) {
  const place = element("div", { class: "plot" });
  const figure = element("figure", { class: "chart" }, place);
  let spec = null; // what is drawn now, as text: only the data of the same plot changes
  let live = null;
  let latest = null;
  let drawing = Promise.resolve();
  const sizes = new ResizeObserver(() => live && live.view.width(place.clientWidth).runAsync());
  sizes.observe(place);

  async function build(chart) {
    const embed = await library(model, place);
    if (live) live.finalize();
    place.replaceChildren();
    place.style.minHeight = `${chart.spec.height}px`;
    const shown = structuredClone(chart.spec);
    live = await embed(place, { ...shown, data: { name: "rows", values: chart.rows }, width: place.clientWidth || 400 },
      { actions: false, renderer: "svg", ast: true, defaultStyle: false, tooltip: { theme: dark(place) ? "dark" : "light" } });
    spec = JSON.stringify(chart.spec);
    for (const { name } of (chart.spec.params || []).concat(...(chart.spec.layer || []).map((each) => each.params || []))) {
      live.view.addSignalListener(name, (_, value) => chosen(name, value));
    }
  }
  async function draw() {
    const chart = latest;
    if (spec !== JSON.stringify(chart.spec)) return build(chart);
    await live.view.data("rows", chart.rows).runAsync();
  }
  function picture(svg) { // a saved file that has no room for the library
    const drawn = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
    place.replaceChildren(document.importNode(drawn, true));
  }
  function show(chart) {
    if (latest && JSON.stringify(chart) === JSON.stringify(latest)) return; // nothing new to draw
    latest = chart;
    figure.setAttribute("aria-label", chart.label);
    if (chart.svg) return picture(chart.svg);
    drawing = drawing.then(draw);
  }
  return { figure, show, current: () => live };
}
