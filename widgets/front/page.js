import { element } from "./dom.js";
import { screen } from "./screen.js";

// The head of the served page: links to the queries and to the sections of one. The browser's address follows what is
// looked at, a moment after it came to rest, so that going back goes to where one stayed.
export function render({ model, root, style }) {
  let view = null;
  let resting;
  const { act, frame, busy, problem } = screen({ model, root, style }, "page", (drawn) => { view = drawn; draw(); });
  const store = element("span", { class: "faint store" });
  const queries = element("nav", { class: "links", "aria-label": "Queries" });
  const sections = element("nav", { class: "links sections", "aria-label": "Views" });
  const said = element("div", { class: "said" });
  const home = element("a", { class: "home", href: "./", onclick: (event) => follow(event, "") }, "streamstate");
  frame.append(element("header", { class: "bar head" }, element("h1", {}, home), store), queries, sections, busy, problem, said);

  function follow(event, address) {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return; // a new tab
    event.preventDefault();
    go(address);
  }
  function go(address) {
    clearTimeout(resting);
    push(address);
    act("address", address);
  }
  const href = (address) => address || location.pathname;
  const push = (address) => address !== location.search && history.pushState(null, "", href(address));
  window.addEventListener("popstate", () => { clearTimeout(resting); act("address", location.search); });

  const link = ({ name, address, current }) =>
    element("a", { href: href(address), class: current ? "current" : "", "aria-current": current ? "page" : null, onclick: (event) => follow(event, address) }, name);
  function redraw(parent, links) {
    const focused = [...parent.children].indexOf(root.activeElement);
    parent.replaceChildren(...links.map(link));
    if (focused >= 0) parent.children[focused]?.focus();
    parent.hidden = links.length === 0;
  }
  let first = true;
  function draw() {
    store.textContent = view.store;
    redraw(queries, view.queries);
    redraw(sections, view.sections.length > 1 ? view.sections : []);
    document.title = [view.query, view.epoch === null ? null : `epoch ${view.epoch}`, "streamstate"].filter(Boolean).join(" · ");
    const { kind, text } = view.said;
    const nothing = view.queries.length ? (view.query ? "" : "Choose a query.") : "The store holds no query yet. The first will show here.";
    said.className = `said ${kind}`;
    said.setAttribute("role", kind === "wrong" ? "alert" : "status");
    if (said.textContent !== (text || nothing)) said.textContent = text || nothing;
    said.hidden = !said.textContent;
    clearTimeout(resting);
    if (first) history.replaceState(null, "", href(view.address));
    else resting = setTimeout(push, 500, view.address);
    first = false;
  }
}
