import { host } from "./host.js";

// A view as a Jupyter widget, as anywidget expects it.
function render({ model, el }) {
  let receive = () => {};
  const received = (content) => receive(content);
  model.on("msg:custom", received);
  const listen = (listener) => {
    receive = listener;
  };
  const { leave } = host({ send: (content) => model.send(content), listen, place: el });
  return () => {
    leave();
    model.off("msg:custom", received);
  };
}
export default { render };
