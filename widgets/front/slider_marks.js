import { element, fact } from "./dom.js";

// The thin strip above a slider: where epochs are missing, where the query was restarted, where forks begin.
const MARK_KINDS = { gap: "gap", gaps: "gap", restart: "restart", restarts: "restart", fork: "fork", forks: "fork" };
const READ_ALOUD = 12; // marks that are read aloud one by one

export function strip() {
  const node = element("div", { class: "strip" });
  let drawn = "";
  return {
    node,
    draw(marks) {
      const state = JSON.stringify(marks);
      if (state === drawn) return; // the pointer may be over a mark, with its title open
      drawn = state;
      node.hidden = marks.length === 0;
      const titles = marks.slice(0, READ_ALOUD).map((mark) => mark.title);
      if (marks.length > READ_ALOUD) titles.push(`and ${marks.length - READ_ALOUD} more`);
      node.setAttribute("role", "img");
      node.setAttribute("aria-label", `Beside the slider: ${titles.join("; ")}.`);
      node.replaceChildren(...marks.map(markNode));
    },
  };
}

function markNode({ kind, place, title }) {
  const mark = element("i", { class: `at ${kind}`, title });
  mark.style.left = `${place * 100}%`;
  return mark;
}

// The same in words, each with the sign that it has on the strip.
export const legend = (notes) =>
  notes.map(([name, value]) => {
    const node = fact(name, value);
    if (MARK_KINDS[name]) node.prepend(element("i", { class: `key ${MARK_KINDS[name]}`, "aria-hidden": "true" }));
    return node;
  });
