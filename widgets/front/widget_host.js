import { host } from "./host.js";

// A view as a Jupyter widget, in the way of anywidget.
function render({ model, el }) {
  let hear = () => {};
  const heard = (content) => hear(content);
  model.on("msg:custom", heard);
  const { leave } = host({ send: (content) => model.send(content), listen: (hears) => (hear = hears), place: el });
  return () => {
    leave();
    model.off("msg:custom", heard);
  };
}
export default { render };
