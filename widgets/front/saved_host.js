
// A saved file: answers the view from the drawings that the file holds. A selection is a list of numbers, an action
// the places in it that it changes.
{
  const STEP = 400; // milliseconds an epoch stays while playing
  const { style, order, held, album } = JSON.parse(document.getElementById("data").textContent);
  const library = document.getElementById("library").textContent;
  const note = document.querySelector(".note");
  const still = document.querySelector(".streamstate-static");
  const live = document.createElement("div");
  const listeners = [];
  let now = album.first;
  let timer;

  const name = (action, value) => `${action} ${JSON.stringify(value ?? null)}`;
  const entry = (tokens) => album.entries[tokens.join(",")];
  const after = (tokens, patch) => tokens.map((token, at) => patch[at] ?? token);
  const tell = (content) => setTimeout(() => listeners.forEach((hears) => hears(content)), 0);
  function show(handled) {
    const message = {};
    for (const [field, at] of Object.entries(entry(now).fields)) message[field] = album.values[at];
    tell({ ...message, kind: "show", view: 1, handled });
  }
  function moved(action) {
    const patch = entry(now).actions[action] ?? album.everywhere[action];
    if (!patch) return "This saved copy does not hold that.";
    const next = after(now, patch);
    const plain = after(album.first, patch);
    if (entry(next)) now = next;
    else if (entry(plain)) now = plain;
    else return "This saved copy does not hold that.";
    return entry(next) ? "" : "Shown as it was saved: in its first order, from its first row.";
  }
  function step(from) {
    const next = order[order.indexOf(from) + 1];
    note.textContent = moved(name("play", next === undefined ? null : next));
    show(handled);
    if (next !== undefined) timer = setTimeout(step, STEP, next);
  }
  let handled = 0;
  function send({ do: action, value, n }) {
    if (action === "library") return library ? tell({ kind: "library", script: library }) : undefined;
    if (n === undefined) return;
    clearTimeout(timer);
    handled = n;
    const stay = action === "epoch" && held ? ` It holds the epochs ${held}.` : "";
    const said = action === "follow" ? "This is a saved copy: nothing new arrives." : moved(name(action, value));
    note.textContent = said && said + stay;
    show(handled);
    if (action === "play" && value !== null && value !== undefined) timer = setTimeout(step, STEP, value);
  }
  live.className = "streamstate-live";
  render({ model: { send, on: (hears) => listeners.push(hears) }, root: live.attachShadow({ mode: "open" }), style });
  still.replaceWith(live);
  show(0);
}
