"""The extras of the distribution: the packages that they install, and the command that installs one."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Literal, TypeAlias

Extra: TypeAlias = Literal["spark", "notebook", "sidecar", "variables"]

# What an extra brings that cannot be done without: the module, and the name that users know.
_EXTRAS: Mapping[Extra, Mapping[str, str]] = {
    "spark": {"pyspark": "Spark", "psutil": "psutil"},
    "notebook": {
        "IPython": "IPython",
        "ipywidgets": "ipywidgets",
        "traitlets": "traitlets",
        "panel": "Panel",
        "anywidget": "anywidget",
        "vl_convert": "vl-convert",
    },
    "sidecar": {"obstore": "obstore", "prometheus_client": "prometheus-client"},
    "variables": {"cryptography": "cryptography", "redis": "redis", "datasketches": "datasketches"},
}


def missing_packages(extra: Extra) -> list[str]:
    """Return the packages of an extra that are not installed; nothing is imported."""
    return [name for module, name in _EXTRAS[extra].items() if importlib.util.find_spec(module) is None]


def install_command(extra: str) -> str:
    """The command that installs an extra, from where streamstate itself was installed.

    pip records that in ``direct_url.json`` (PEP 610), unless it was a package index.
    """
    import json
    from importlib.metadata import distributions
    from urllib.parse import unquote, urlsplit

    installed = (found for found in distributions(name="streamstate") if found.read_text("RECORD"))
    text = next((found.read_text("direct_url.json") for found in installed), None)
    if text is None:
        return f"pip install 'streamstate[{extra}]'"
    source = json.loads(text)
    if "dir_info" in source:
        editable = "--editable " if source["dir_info"].get("editable") else ""
        return f"pip install {editable}'{unquote(urlsplit(source['url']).path)}[{extra}]'"
    system = f"{source['vcs_info']['vcs']}+" if "vcs_info" in source else ""
    return f"pip install 'streamstate[{extra}] @ {system}{source['url']}'"
