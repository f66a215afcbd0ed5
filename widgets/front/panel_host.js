import { host } from "./host.js";

// A view as a component of Panel.
export function render({ model, view }) {
  const place = document.createElement("div");
  let receive = () => {};
  model.on("msg:custom", (text) => receive(JSON.parse(text)));
  const listen = (listener) => {
    receive = listener;
  };
  const { leave, disconnected } = host({ send: (content) => model.send_msg(content), listen, place });
  model.on("remove", leave);
  view.model.document?.on_event("connection_lost", disconnected);
  return place;
}
