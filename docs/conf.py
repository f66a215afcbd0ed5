"""How the documentation is built: ``make docs``, then open ``build/site/index.html``.

The site also works offline: no page loads anything from another host, and the search works from ``file://``.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))

import streamstate  # noqa: E402 (what is documented is what is installed, or on PYTHONPATH)

project = "streamstate"
author = "the streamstate contributors"
copyright = "the streamstate contributors, Apache License 2.0"  # noqa: A001 (Sphinx calls it that)
version = release = streamstate.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "api_reference",
    "commands_reference",
    "docstrings",
    "interface_table",
    "magics_reference",
    "simulations",
    "tutorial_list",
]
exclude_patterns = ["_ext", "_static"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb", ".rst": "restructuredtext"}

# Notebooks are shown as they were run before the build (tutorial_list), in the still form that needs no kernel.
nb_execution_mode = "off"
nb_merge_streams = True
nb_mime_priority_overrides = [("html", "text/html", 1), ("html", "application/vnd.jupyter.widget-view+json", None)]

# A reference to an unknown name is an error. Types in signatures that are not public stay plain text (api_reference).
nitpicky = True
# The site is read offline, so it does not link to other packages' documentation.
nitpick_ignore_regex = [
    (r"py:.*", r"(collections|datetime|pathlib|typing)\..*"),
    (
        r"py:class",
        r"datetime|Stopped|InputOrigin|DataFrame|.*\.(SuspectKind|PolicyTerms|SimulatedEpoch|CostModel)",
    ),  # written out where they are used
    (r"py:.*", r"(pandas|pd|pyarrow|pa|polars|pyspark|panel|ipywidgets|IPython)\..*"),
]

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3
smartquotes_action = "D"  # dashes only: quotes stay as they are written
highlight_language = "none"  # indented blocks are trees of folders and plain text

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 120
add_module_names = False
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_preprocess_types = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "streamstate"
html_static_path = ["_static"]
html_css_files = ["streamstate.css"]
html_js_files = ["streamstate.js"]
html_copy_source = False
html_show_sourcelink = False
html_search_scorer = str(HERE / "_ext" / "search_scorer.js")
# The summaries are fetched page by page, which browsers refuse for files.
html_show_search_summary = False
# The theme shows names of functions and options in the colour of errors.
_NAMES = {"color-api-name": "var(--color-brand-content)", "color-api-pre-name": "var(--color-foreground-muted)"}
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": {"color-brand-primary": "#1565c0", "color-brand-content": "#1565c0", **_NAMES},
    "dark_css_variables": {"color-brand-primary": "#7fb5f5", "color-brand-content": "#7fb5f5", **_NAMES},
}
pygments_style = "default"
pygments_dark_style = "github-dark"
