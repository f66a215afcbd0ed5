import { host } from "./host.js";

// A view as a component of Panel.
export function render({ model, view }) {
  const place = document.createElement("div");
  let hear = () => {};
  const heard = (text) => hear(JSON.parse(text));
  model.on("msg:custom", heard);
  const { leave, lose } = host({ send: (content) => model.send_msg(content), listen: (hears) => (hear = hears), place });
  model.on("remove", leave);
  view.model.document?.on_event("connection_lost", lose);
  return place;
}
