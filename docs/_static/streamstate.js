// What the theme leaves out for those who read with a keyboard or a screen reader.
addEventListener("DOMContentLoaded", () => {
  for (const caption of document.querySelectorAll("p.caption[role=heading]")) caption.ariaLevel = "2";
  for (const [where, label] of [[".sidebar-drawer", "All pages"], [".toc-drawer", "This page"]]) {
    document.querySelector(where)?.setAttribute("aria-label", label);
  }
  // The lines of a long signature are a list of definitions without terms.
  for (const part of document.querySelectorAll("dt.sig dl, dt.sig dd")) part.role = "none";
  // What is wider than the page scrolls by itself, so it has to be reachable.
  const reach = () => {
    for (const wide of document.querySelectorAll("pre, .table-wrapper")) {
      if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0;
    }
  };
  reach();
  addEventListener("resize", reach);
});
