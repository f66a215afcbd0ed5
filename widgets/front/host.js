// A view inside a component of another library: `send` and `listen` are that component's line to the kernel. What is
// shown twice has two pages on one line, so every message says which it is for.
export function host({ send, listen, place }) {
  const page = crypto.getRandomValues(new Uint32Array(2)).join("-");
  let live = null;
  const listeners = []; // the view, and its plots while they wait for their library
  let kept = null; // a drawing that arrived while the view's code was loading
  let ended = false;
  const say = (content) => send({ from: page, content });

  async function bring(module) {
    const url = URL.createObjectURL(new Blob([module.script], { type: "text/javascript" }));
    const code = await import(url);
    URL.revokeObjectURL(url);
    if (ended) return;
    live = document.createElement("div");
    live.className = "streamstate-live";
    live.setAttribute("data-lm-suppress-shortcuts", "true"); // keys belong to the view, not to the notebook
    code.render({ model: { send: say, on: (hears) => listeners.push(hears) }, root: live.attachShadow({ mode: "open" }), style: module.style });
    if (kept) draw(kept);
  }
  function draw(content) {
    if (!listeners.length) return void (kept = content);
    for (const hears of listeners) hears(content);
    if (!live.parentElement) place.replaceChildren(live);
  }
  function hear({ to, content }) {
    if (to !== page || ended) return;
    if (content.kind === "module") bring(content);
    else if (content.kind === "closed") end();
    else if (content.kind !== "here") draw(content);
  }
  function leave() {
    if (ended) return;
    say({ do: "leave" });
    end();
  }
  function end() {
    ended = true;
    window.removeEventListener("pagehide", leave);
    if (live) live.inert = true; // what was seen last stays, and can no longer be used
  }
  function lose() {
    if (ended) return;
    end();
    const said = document.createElement("p");
    said.setAttribute("role", "alert");
    said.textContent = "The connection is lost; this is what was seen last. Load the page again to go on.";
    place.prepend(said);
  }
  window.addEventListener("pagehide", leave);
  listen(hear);
  say({ do: "join" });
  return { leave, lose };
}
