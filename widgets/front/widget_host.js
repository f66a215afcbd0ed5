import { host } from "./host.js";

// A view as a Jupyter widget, as anywidget expects it.
function render({ model, el }) {
  let receive = () => {};
  const received = (content) => receive(content);
  model.on("msg:custom", received);
  const listen = (listener) => {
    receive = listener;
  };
  const place = document.createElement("div");
  const style = document.createElement("style");
  const hideStills = () => {
    style.textContent = model.get("hiding");
  };
  hideStills();
  model.on("change:hiding", hideStills);
  el.append(style, place);
  const { leave } = host({ send: (content) => model.send(content), listen, place });
  return () => {
    leave();
    model.off("msg:custom", received);
    model.off("change:hiding", hideStills);
  };
}
export default { render };
