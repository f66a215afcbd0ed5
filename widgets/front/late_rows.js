import { element } from "./dom.js";
import { labelledPlot } from "./plots.js";
import { screen } from "./screen.js";

// Late rows by epoch: what was dropped, and how late it was.
export function render({ model, root, style }) {
  const { frame, busy, problem } = screen({ model, root, style }, "screen late", draw);
  const name = element("span", { class: "name" });
  const summary = element("div", { class: "summary", role: "status" });
  const charts = element("div", {});
  let plots = [];
  frame.append(element("div", { class: "bar head" }, name), busy, problem, summary, charts);

  function draw(view) {
    frame.setAttribute("aria-label", `Late rows of ${view.name}`);
    name.textContent = view.name;
    summary.replaceChildren(...view.sentences.map((sentence) => element("p", {}, sentence)));
    if (plots.length !== view.charts.length) {
      plots = view.charts.map(() => labelledPlot(model));
      charts.replaceChildren(...plots.map(({ node }) => node));
    }
    for (const [i, chart] of view.charts.entries()) plots[i].show(chart);
  }
}
