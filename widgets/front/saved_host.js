/* global render -- the module of the view, which comes before this script in the file */

// A saved file: answers the view from the drawings that the file holds. A selection is a list of numbers, an action
// the places in it that it changes.
{
  const STEP = 400; // milliseconds that an epoch stays while playing
  const { style, epochs, album } = JSON.parse(document.getElementById("data").textContent);
  const library = JSON.parse(document.getElementById("library").textContent);
  const note = document.querySelector(".note");
  const live = document.createElement("div");
  const listeners = [];
  let now = album.first;
  let handled = 0;
  let playing = false;
  let timer;

  const actionName = (action, value) => `${action} ${JSON.stringify(value ?? null)}`;
  const entry = (selection) => album.entries[selection.join(",")];
  const after = (selection, patch) => selection.map((token, place) => patch[place] ?? token);
  function deliver(content) {
    setTimeout(() => {
      for (const listener of listeners) listener(content);
    }, 0);
  }
  function show() {
    const fields = Object.entries(entry(now).fields).map(([field, place]) => [field, album.values[place]]);
    const content = { ...Object.fromEntries(fields), kind: "show", view: 1, handled };
    if (content.why_not === "") content.why_not = null; // there is no kernel to ask
    if (content.selection) content.selection = { ...content.selection, playing };
    deliver(content);
  }
  // Moves to the selection after an action, and returns what the person should know about it.
  function move(action) {
    const patch = entry(now).actions[action] ?? album.everywhere[action];
    const exact = patch && after(now, patch);
    const nearest = patch && [exact, after(album.first, patch)].find(entry);
    if (!nearest) return "This saved copy does not contain that.";
    now = nearest;
    return nearest === exact ? "" : "Shown as it was saved: in its first order, from its first row.";
  }
  function play(epoch) {
    playing = epoch !== null && epoch !== undefined;
    if (!playing) return "";
    const next = epochs.order[epochs.order.indexOf(epoch) + 1];
    timer = setTimeout(step, STEP, next);
    return move(actionName(epochs.action, epoch));
  }
  function step(epoch) {
    note.textContent = play(epoch);
    show();
  }
  function act(action, value) {
    if (action === "play") return play(value);
    playing = false;
    if (action === "follow") return "This is a saved copy: no new epochs arrive.";
    const message = move(actionName(action, value));
    return message && action === epochs.action && epochs.held
      ? `${message} It contains the epochs ${epochs.held}.`
      : message;
  }
  function send({ do: action, value, n }) {
    if (action === "library") return library ? deliver({ kind: "library", script: library }) : undefined;
    if (n === undefined) return;
    clearTimeout(timer);
    handled = n;
    note.textContent = act(action, value);
    show();
  }
  live.className = "streamstate-live";
  const model = { send, on: (listener) => listeners.push(listener) };
  render({ model, root: live.attachShadow({ mode: "open" }), style });
  document.querySelector(".streamstate-static").replaceWith(live);
  show();
}
