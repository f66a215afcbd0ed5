"""The JavaScript of the page: a module for each kind of view, and the modules they share.

The modules are plain ES modules, which editors, browsers and Node read as they are. A notebook's output, a saved file
and a served page have no place in common to import modules from, so the modules of a view are joined into one text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from importlib.resources import files

__all__ = ["bundle", "join_modules", "plot_library", "resource", "style"]

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|const|class)\b)", re.MULTILINE)
_DEFAULT = re.compile(r"^export default\b", re.MULTILINE)
_OTHER = re.compile(r"^(?:import\b(?!\().*|export\b(?! default\b).*)", re.MULTILINE)
_NAME = re.compile(
    r"^(export )?(?:async function|function|const|let|class) (?:([\w$]+)|[\[{]([^\]}=]*)[\]}])", re.MULTILINE
)


def resource(name: str) -> str:
    """Return a file of this folder."""
    return files("streamstate.widgets.front").joinpath(name).read_text("utf-8")


@cache
def bundle(kind: str) -> str:
    """Return the ES module of a kind of view, which exports ``render``, joined with every module that it imports."""
    return join_modules(kind, _module)


def join_modules(entry: str, read: Callable[[str], str]) -> str:
    r"""Join a module with every module that it imports into one text.

    All modules share one scope in that text, so a name can be declared at the top level of only one of them. The
    supported forms are ``import { a, b } from "./name.js";`` and ``export`` before a declaration; the entry, whose
    exports the text keeps, may also have a default export. Anything else, and an unknown module or name, a cycle, or a
    name that is declared twice, raises an ImportError.

    Example:
        >>> sources = {"view": 'import { two } from "./lib.js";\nexport const four = 2 * two;\n'}
        >>> print(join_modules("view", (sources | {"lib": "export const two = 2;\n"}).__getitem__))
        const two = 2;
        export const four = 2 * two;
    """
    sources = _in_order(entry, read)
    _check_names(sources)
    *shared, last = (_IMPORT.sub("", source) for source in sources.values())
    return "\n".join([*(_EXPORT.sub("", source).strip() for source in shared), last.strip()])


def _in_order(entry: str, read: Callable[[str], str]) -> dict[str, str]:
    """Return the modules by name, each after those that it imports."""
    ordered: dict[str, str] = {}

    def add(name: str, importers: tuple[str, ...]) -> None:
        if name in importers:
            raise ImportError(f"Circular import of JavaScript modules: {' → '.join([*importers, name])}.")
        if name in ordered:
            return
        try:
            source = read(name)
        except (FileNotFoundError, KeyError):
            reason = f"{importers[-1]}.js imports ./{name}.js, which" if importers else f"{name}.js"
            raise ImportError(f"{reason} does not exist.") from None
        _check_forms(name, source, entry=not importers)
        for _, imported in _IMPORT.findall(source):
            add(imported, (*importers, name))
        ordered[name] = source

    add(entry, ())
    return ordered


def _check_forms(name: str, source: str, *, entry: bool) -> None:
    """Refuse every import and export that joining would break."""
    unsupported = _OTHER.search(_EXPORT.sub("", _IMPORT.sub("", source)))
    if unsupported is None and not entry:
        unsupported = _DEFAULT.search(source)
    if unsupported:
        raise ImportError(
            f"Unsupported statement in {name}.js: {unsupported.group().strip()}\n"
            "Expected imports like 'import { a, b } from \"./name.js\";' and exports like 'export function a'."
        )


def _check_names(sources: dict[str, str]) -> None:
    """Refuse names that are imported but not exported, and names that two modules declare."""
    for name, source in sources.items():
        for names, imported in _IMPORT.findall(source):
            exported = {declared for export, declared in _declared(sources[imported]) if export}
            for imported_name in _listed(names):
                if imported_name not in exported:
                    known = ", ".join(sorted(exported))
                    raise ImportError(f"{name}.js imports {imported_name!r} from {imported}.js, which exports {known}.")
    owners = [(declared, name) for name, source in sources.items() for _, declared in _declared(source)]
    for declared, times in Counter(declared for declared, _ in owners).items():
        if times > 1:
            modules = " and ".join(f"{name}.js" for owned, name in owners if owned == declared)
            raise ImportError(f"{modules} both declare {declared!r}. Rename one: joined modules share one scope.")


def _declared(source: str) -> list[tuple[bool, str]]:
    """Return the names that a module declares at its top level, and whether it exports them."""
    found = _NAME.findall(source)
    return [(bool(export), name) for export, single, several in found for name in _listed(single or several)]


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def _module(name: str) -> str:
    return resource(f"{name}.js")


@cache
def style(kind: str) -> str:
    """Return the style sheet of a kind of view: what all share, and the sheet of each of its modules that has one."""
    sheets = [files("streamstate.widgets.front").joinpath(f"{name}.css") for name in _in_order(kind, _module)]
    return resource("view.css") + "".join(sheet.read_text("utf-8") for sheet in sheets if sheet.is_file())


@cache
def plot_library() -> str:
    """Return the script of Vega, Vega-Lite and Vega-Embed, which sets ``window.vegaEmbed``; about 0.9 MB.

    It comes from the package that draws the still pictures, so both look the same and nothing is downloaded.
    """
    import vl_convert

    library: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return library
