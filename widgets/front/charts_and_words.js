import { scrollArea } from "./controls.js";
import { element } from "./dom.js";
import { labelledPlot } from "./plots.js";
import { screen } from "./screen.js";
import { numericColumns, plainHeading, valueCell } from "./tables.js";

// Sentences, plots below them, and at times a list: what the kernel says, for views in which nothing can be chosen.
export function render({ model, root, style }) {
  const { frame, busy, problem } = screen({ model, root, style }, "screen charts-and-words", draw);
  const name = element("span", { class: "name" });
  const summary = element("div", { class: "summary", role: "status" });
  const charts = element("div", {});
  const listing = element("div", { hidden: true });
  const unknown = element("div", {});
  const notKnown = element("details", { hidden: true }, element("summary", {}, "Not known"), unknown);
  let plots = [];
  frame.append(element("div", { class: "bar head" }, name), busy, problem, summary, charts, listing, notKnown);

  function draw(view) {
    frame.setAttribute("aria-label", view.label);
    name.textContent = view.name;
    drawSentences(summary, view.sentences);
    drawSentences(unknown, view.unknown);
    notKnown.hidden = !view.unknown.length;
    if (plots.length !== view.charts.length) {
      plots = view.charts.map(() => labelledPlot(model));
      charts.replaceChildren(...plots.map(({ node }) => node));
    }
    for (const [i, chart] of view.charts.entries()) plots[i].show(chart);
    listing.hidden = !view.listing;
    listing.replaceChildren(...(view.listing ? [listed(view.listing)] : []));
  }

  // A screen reader reads aloud what changes here: a sentence that stays is left alone.
  function drawSentences(place, sentences) {
    while (place.children.length > sentences.length) place.lastChild.remove();
    for (const [i, sentence] of sentences.entries()) {
      const node = place.children[i] ?? place.appendChild(element("p", {}));
      if (node.textContent !== sentence) node.textContent = sentence;
    }
  }
}

// Cells as a table, with a label above it.
function listed({ label, heads, rows }) {
  const numeric = numericColumns(heads, rows, (row, i) => row[i]);
  const headings = heads.map((text, i) => plainHeading(text, numeric[i]));
  const lines = rows.map((row) => element("tr", {}, ...row.map((cell, i) => valueCell(cell, numeric[i]))));
  const table = element(
    "table",
    { "aria-label": label },
    element("thead", {}, element("tr", {}, ...headings)),
    element("tbody", {}, ...lines),
  );
  return element("div", {}, element("h4", {}, label), scrollArea(label, {}, table));
}
