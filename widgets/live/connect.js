// biome-ignore lint/correctness/noUnusedVariables: hosts.py calls it
function connect(target, view, display, hiding) {
  // Finds the kernel of this output and shows the live view in place of the still form above it.
  const script = document.currentScript;
  const output = script?.parentElement;
  if (!output) return;
  const kernels = () => window.PyViz?.kernels || {};
  let kernel, line, live, watch, early;
  let listeners = []; // the view, and its plots while they wait for their library
  let asked = 0;

  function send(content) {
    if (line) line.send(content);
  }
  function receive(message) {
    const content = message.content.data;
    if (content.kind === "module") load(content);
    else if (content.kind === "here") stay();
    else if (content.kind === "closed") end();
    else if (listeners.length) draw(content);
    else early = content; // the view's code is still loading
  }
  function draw(content) {
    for (const listener of [...listeners]) listener(content);
    if (!live.parentElement) output.appendChild(live);
  }
  async function load(module) {
    const url = URL.createObjectURL(new Blob([module.script], { type: "text/javascript" }));
    const code = await import(url);
    URL.revokeObjectURL(url);
    if (!line) return; // closed in the meantime
    live = document.createElement("div");
    live.className = "streamstate-live";
    live.setAttribute("data-lm-suppress-shortcuts", "true"); // keys belong to the view, not to JupyterLab's command mode
    // JupyterLab does not lay out cells that are out of sight, which keep the height of the still form.
    const style = document.createElement("style");
    style.textContent = `.jp-Notebook-cell:has(.streamstate-live) { content-visibility: visible !important; } ${hiding}`;
    live.append(style);
    const root = live.attachShadow({ mode: "open" });
    code.render({ model: { send, on: (listener) => listeners.push(listener) }, root, style: module.style });
    if (early) draw(early);
    setTimeout(send, 500, { do: "here" }); // by now JupyterLab may answer while cells run
  }
  function end() {
    clearInterval(watch);
    window.removeEventListener("pagehide", leave);
    if (live) live.remove();
    line = live = undefined;
    listeners = [];
  }
  function leave() {
    send({ do: "leave" });
  }
  function check() {
    // JupyterLab forgets the kernel of an output that was removed, of one whose second view was closed, and of a
    // kernel that restarted. An output that is still in the page asks its kernel before it gives up.
    if (kernels()[display]) return;
    if (output.isConnected && ++asked < 4) return send({ do: "here" });
    leave();
    end();
  }
  function stay() {
    if (asked && output.isConnected) window.PyViz.kernels[display] = kernel;
    asked = 0;
  }
  function open(tries = 0) {
    if (line?.active) line.open({ view });
    else if (tries < 40) setTimeout(open, 250, tries + 1); // the kernel is still starting
  }
  function start() {
    kernel = kernels()[display];
    if (!kernel) return;
    line = kernel.connectToComm(target);
    line.onMsg = receive;
    open();
    watch = setInterval(check, 1000);
    window.addEventListener("pagehide", leave);
  }
  setTimeout(start, 0);
}
