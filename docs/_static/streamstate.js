// Accessibility that the theme leaves out, for people who use a keyboard or a screen reader.
addEventListener("DOMContentLoaded", () => {
  for (const caption of document.querySelectorAll("p.caption[role=heading]")) caption.ariaLevel = "2";
  for (const [selector, label] of [
    [".sidebar-drawer", "All pages"],
    [".toc-drawer", "This page"],
  ]) {
    document.querySelector(selector)?.setAttribute("aria-label", label);
  }
  // The lines of a long signature are a list of definitions without terms.
  for (const part of document.querySelectorAll("dt.sig dl, dt.sig dd")) part.role = "none";
  // A block that is larger than its frame scrolls, so the keyboard has to reach it.
  const makeReachable = () => {
    for (const block of document.querySelectorAll("pre, .table-wrapper, .cell_output .output")) {
      if (block.scrollWidth > block.clientWidth || block.scrollHeight > block.clientHeight) block.tabIndex = 0;
    }
  };
  makeReachable();
  addEventListener("resize", makeReachable);
});
