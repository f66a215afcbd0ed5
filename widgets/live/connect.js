function (target, view, display) {
  // Finds the kernel of this output and lets it bring the static table to life; without one the table stays.
  const script = document.currentScript;
  const output = script && script.parentElement;
  if (!output) return;
  const still = output.querySelector(".streamstate-static");
  const kernels = () => (window.PyViz && window.PyViz.kernels) || {};
  let kernel, line, live, watch, kept;
  let listeners = []; // the view, and what else of the page waits for the kernel, such as its plots
  let asked = 0;

  function send(content) {
    if (line) line.send(content);
  }
  function heard(message) {
    const content = message.content.data;
    if (content.kind === "module") bring(content);
    else if (content.kind === "here") stay();
    else if (content.kind === "closed") end();
    else if (listeners.length) draw(content);
    else kept = content; // the view's code is still loading
  }
  function draw(content) {
    for (const hears of [...listeners]) hears(content);
    if (live.parentElement) return;
    output.appendChild(live);
    still.hidden = true;
  }
  async function bring(module) {
    const url = URL.createObjectURL(new Blob([module.script], { type: "text/javascript" }));
    const code = await import(url);
    URL.revokeObjectURL(url);
    if (!line) return; // closed meanwhile
    live = document.createElement("div");
    live.className = "streamstate-live";
    live.setAttribute("data-lm-suppress-shortcuts", "true"); // keys belong to the view, not to JupyterLab's command mode
    const root = live.attachShadow({ mode: "open" });
    code.render({ model: { send, on: (hears) => listeners.push(hears) }, root, style: module.style });
    if (kept) draw(kept);
    setTimeout(send, 500, { do: "here" }); // by now JupyterLab may speak to the kernel beside the cells that run
  }
  function end() {
    clearInterval(watch);
    window.removeEventListener("pagehide", leave);
    if (live) live.remove();
    still.hidden = false;
    line = live = undefined;
    listeners = [];
  }
  function leave() {
    send({ do: "leave" });
  }
  function check() {
    // JupyterLab forgets the kernel of an output that was removed, of one whose second view was closed, and of a
    // kernel that restarted. An output that is still there asks its kernel before it gives up.
    if (kernels()[display]) return;
    if (output.isConnected && ++asked < 4) return send({ do: "here" });
    leave();
    end();
  }
  function stay() {
    if (asked && output.isConnected) window.PyViz.kernels[display] = kernel;
    asked = 0;
  }
  function connect() {
    kernel = kernels()[display];
    if (!kernel) return;
    line = kernel.connectToComm(target);
    line.onMsg = heard;
    let tries = 0;
    (function open() {
      if (line.active) line.open({ view });
      else if (++tries < 40) setTimeout(open, 250); // the kernel is still starting
    })();
    watch = setInterval(check, 1000);
    window.addEventListener("pagehide", leave);
  }
  setTimeout(connect, 0);
}
