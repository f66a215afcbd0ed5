import { element } from "./dom.js";
import { screen } from "./screen.js";

const REST = 500; // milliseconds after which what is shown becomes an entry of the browser's history

// The head of the served page: links to the queries and to the sections of one. The browser's address follows what is
// shown once it has stayed the same for a moment, so that "back" leads to where a person stayed.
export function render({ model, root, style }) {
  const { act, frame, busy, problem } = screen({ model, root, style }, "page", draw);
  const addresses = addressBar(act);
  const store = element("span", { class: "faint store" });
  const queries = element("nav", { class: "links", "aria-label": "Queries" });
  const sections = element("nav", { class: "links sections", "aria-label": "Views" });
  const message = element("div", { class: "message" });
  const home = link({ name: "streamstate", address: "" });
  home.className = "home";
  home.setAttribute("href", "./");
  const head = element("header", { class: "bar head" }, element("h1", {}, home), store);
  frame.append(head, queries, sections, busy, problem, message);

  function link({ name, address, current }) {
    function follow(event) {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return; // opens a new tab
      event.preventDefault();
      addresses.go(address);
    }
    const attributes = { class: current ? "current" : "", "aria-current": current ? "page" : null, onclick: follow };
    return element("a", { href: hrefOf(address), ...attributes }, name);
  }

  function drawLinks(parent, links) {
    const focused = [...parent.children].indexOf(root.activeElement);
    parent.replaceChildren(...links.map(link));
    if (focused >= 0) parent.children[focused]?.focus();
    parent.hidden = links.length === 0;
  }

  function drawMessage({ kind, text }) {
    message.className = `message ${kind}`;
    message.setAttribute("role", kind === "wrong" ? "alert" : "status");
    if (message.textContent !== text) message.textContent = text;
    message.hidden = !text;
  }

  function draw(view) {
    store.textContent = view.store;
    drawLinks(queries, view.queries);
    drawLinks(sections, view.sections.length > 1 ? view.sections : []);
    document.title = titleOf(view);
    drawMessage({ kind: view.notice.kind, text: view.notice.text || hintFor(view) });
    addresses.shown(view.address);
  }
}

export const titleOf = ({ query, epoch }) =>
  [query, epoch === null ? null : `epoch ${epoch}`, "streamstate"].filter(Boolean).join(" · ");

export function hintFor({ queries, query }) {
  if (!queries.length) return "This store does not contain any queries yet. The first one will appear here.";
  return query ? "" : "Choose a query.";
}

const hrefOf = (address) => address || location.pathname;

// The browser's address and history.
function addressBar(act) {
  let resting;
  let first = true;
  const push = (address) => address !== location.search && history.pushState(null, "", hrefOf(address));
  window.addEventListener("popstate", () => {
    clearTimeout(resting);
    act("address", location.search);
  });
  return {
    go(address) {
      clearTimeout(resting);
      push(address);
      act("address", address);
    },
    shown(address) {
      clearTimeout(resting);
      if (first) history.replaceState(null, "", hrefOf(address));
      else resting = setTimeout(push, REST, address);
      first = false;
    },
  };
}
