"""What runs in the page: a JavaScript module for each kind of view, and the modules they share.

A page gets one module per view, whatever it is shown in. The modules are plain ES modules, so that an editor and a
browser read them as they are; here they are put together into one text, because a notebook's output, a saved file
and a served page have no place in common that a module could import another from.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

__all__ = ["bundle", "plot_library", "resource", "style"]

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=async function|function|const|class)", re.MULTILINE)


def resource(name: str) -> str:
    """A file of this folder."""
    return files("streamstate.widgets.front").joinpath(name).read_text("utf-8")


@cache
def bundle(kind: str) -> str:
    """One ES module that exports ``render``: that of ``<kind>.js``, with every module that it imports before it."""
    order: list[str] = []
    _collect(kind, order)
    inner = [_EXPORT.sub("", _IMPORT.sub("", resource(f"{name}.js"))) for name in order[:-1]]
    return "\n".join([*inner, _IMPORT.sub("", resource(f"{kind}.js"))])


def _collect(name: str, order: list[str]) -> None:
    """Append a module after those it imports, each once."""
    for wanted in _IMPORT.findall(resource(f"{name}.js")):
        if wanted not in order:
            _collect(wanted, order)
    order.append(name)


@cache
def style(kind: str) -> str:
    """The style sheet of a kind of view: what all share, and that of each of its modules which has one."""
    order: list[str] = []
    _collect(kind, order)
    sheets = [files("streamstate.widgets.front").joinpath(f"{name}.css") for name in order]
    return resource("view.css") + "".join(one.read_text("utf-8") for one in sheets if one.is_file())


@cache
def plot_library() -> str:
    """The script of Vega, Vega-Lite and Vega-Embed, which sets ``window.vegaEmbed``; about 0.9 MB.

    It comes out of the package that draws the still pictures, so that both draw alike, and nothing is fetched.
    """
    import vl_convert

    library: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return library
