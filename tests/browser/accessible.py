"""Audits a view with axe-core, the engine behind most accessibility tools."""

from __future__ import annotations

from axe_playwright_python.base import AXE_SCRIPT  # it has no types
from playwright.sync_api import Locator

_AUDIT = """async (node) => {
    const found = await axe.run(node, {resultTypes: ["violations"]});
    return found.violations.map((each) => `${each.id}: ${each.help}: ${each.nodes.map((one) => one.html).join(" | ")}`);
}"""


def violations(view: Locator) -> list[str]:
    """Every rule that a view violates, and where."""
    view.page.evaluate(AXE_SCRIPT)
    found: list[str] = view.evaluate(_AUDIT)
    return found
