import { classes, element, icon } from "./dom.js";
import { range } from "./words.js";

// Controls that several views share.

const TYPING = 250; // milliseconds without a keystroke after which a search starts
const PAGE_SIZES = [10, 25, 50, 100];

export const button = (attributes, ...children) => element("button", { type: "button", ...attributes }, ...children);

export const iconButton = (name, label, onclick, title = label) =>
  button({ "aria-label": label, title, onclick }, icon(name));

export const group = (label, ...children) =>
  element("span", { class: "group", role: "group", "aria-label": label }, ...children);

export const pushRight = () => element("span", { class: "push" });

export const scrollArea = (label, attributes, ...children) =>
  element(
    "div",
    { tabindex: 0, role: "group", "aria-label": label, ...attributes, class: classes("scroll", attributes.class) },
    ...children,
  );

export function selectBox(label, choose) {
  const node = element("select", { "aria-label": label, onchange: () => choose(node.value) });
  return node;
}

// Calls `search` with the text once the typing pauses.
export function searchBox(attributes, search) {
  let typing;
  const node = element("input", { type: "search", ...attributes });
  node.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => search(node.value), TYPING);
  });
  return node;
}

// JupyterLab handles Enter itself, so that an input there gets no change event for it.
export function onEnter(input, work) {
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") work(event);
  });
}

// Attributes of a row that a click, Enter or Space chooses.
export const choosable = (choose) => ({
  tabindex: 0,
  onclick: choose,
  onkeydown: (event) => {
    // Keys on a button in the row are the button's.
    if ((event.key !== "Enter" && event.key !== " ") || event.target !== event.currentTarget) return;
    event.preventDefault();
    choose();
  },
});

export const followButton = (title, onclick) =>
  button({ class: "follow", title, onclick }, element("i", { "aria-hidden": "true" }), "Follow live");

// Shows which rows of how many are on the page, and turns pages: `turn(-1)` goes back, `turn(1)` forward. If `resize`
// is given, a select sets the number of rows per page.
export function pager({ turn, labels = ["Previous page", "Next page"], resize = null, sizeLabel = "Rows per page" }) {
  const text = element("span", { class: "pager faint" });
  const previous = iconButton("previous", labels[0], () => turn(-1));
  const next = iconButton("next", labels[1], () => turn(1));
  const size = selectBox(sizeLabel, (rows) => resize(Number(rows)));
  size.append(...PAGE_SIZES.map((rows) => element("option", { value: rows }, `${rows} rows`)));
  const parts = [text, group("Pages", previous, next), ...(resize ? [size] : [])];

  function draw(place, rowsPerPage = null, note = "") {
    drawPages({ text, previous, next }, place, note);
    if (rowsPerPage !== null) size.value = rowsPerPage;
  }
  return { parts, previous, next, draw };
}

export function drawPages({ text, previous, next }, place, note = "") {
  text.textContent = place.rows ? `${range(place)}${note}` : "";
  previous.disabled = place.offset === 0;
  next.disabled = place.offset + place.rows >= place.total;
}

// Draws, but not while the pointer is pressed: a button that is replaced between press and release gets no click.
export function drawWhenReleased(frame, draw) {
  let pressed = false;
  let late = false;
  const release = () =>
    setTimeout(() => {
      pressed = false;
      if (late) draw();
      late = false;
    }, 0);
  frame.addEventListener("pointerdown", () => {
    pressed = true;
    for (const end of ["pointerup", "pointercancel"]) window.addEventListener(end, release, { once: true });
  });
  return () => {
    if (pressed) late = true;
    else draw();
  };
}
