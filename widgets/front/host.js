// A view inside a component of another library: `send` and `listen` are that component's line to the kernel. A view
// that is shown twice has two pages on one line, so every message names the page it is for.
export function host({ send, listen, place }) {
  const page = crypto.getRandomValues(new Uint32Array(2)).join("-");
  const listeners = []; // the view, and its plots while they wait for their library
  let live = null;
  let early = null; // a drawing that arrived while the view's code was loading
  let ended = false;
  const sendFromPage = (content) => send({ from: page, content });

  async function load(module) {
    const url = URL.createObjectURL(new Blob([module.script], { type: "text/javascript" }));
    const code = await import(url);
    URL.revokeObjectURL(url);
    if (ended) return;
    live = document.createElement("div");
    live.className = "streamstate-live";
    live.setAttribute("data-lm-suppress-shortcuts", "true"); // keys belong to the view, not to the notebook
    code.render({
      model: { send: sendFromPage, on: (listener) => listeners.push(listener) },
      root: live.attachShadow({ mode: "open" }),
      style: module.style,
    });
    if (early) draw(early);
  }
  function draw(content) {
    if (!listeners.length) {
      early = content;
      return;
    }
    for (const listener of listeners) listener(content);
    if (!live.parentElement) place.replaceChildren(live);
  }
  function receive({ to, content }) {
    if (to !== page || ended) return;
    if (content.kind === "module") load(content);
    else if (content.kind === "closed") end();
    else if (content.kind !== "here") draw(content);
  }
  function leave() {
    if (ended) return;
    sendFromPage({ do: "leave" });
    end();
  }
  function end() {
    ended = true;
    window.removeEventListener("pagehide", leave);
    if (live) live.inert = true; // the last drawing stays, but can no longer be used
  }
  function disconnected() {
    if (ended) return;
    end();
    const message = document.createElement("p");
    message.setAttribute("role", "alert");
    message.textContent = "The connection is lost. The view shows its last state; reload the page to reconnect.";
    place.prepend(message);
  }
  window.addEventListener("pagehide", leave);
  listen(receive);
  sendFromPage({ do: "join" });
  return { leave, disconnected };
}
