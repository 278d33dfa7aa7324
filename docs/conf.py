"""How the docs site is built: `make docs`."""

from __future__ import annotations

from dataclasses import fields
from importlib.metadata import version as version_of

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

from fairfox.options import GROUPS

project = "fairfox"
author = "The fairfox authors"
copyright = f"2026, {author}"
version = release = version_of("fairfox")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["amsmath", "dollarmath"]
myst_heading_anchors = 4
exclude_patterns = ["_build"]
default_role = "code"  # docstrings have `names` as Markdown has them

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 90

ASIDE: dict[str, list[str]] = {}  # docstrings of attributes, by name
nitpicky = True
nitpick_ignore_regex = [  # the site is built without a network, so that nobody else's pages are known
    ("py:.*", r"(altair|collections|jax|narwhals|numpy|os|pandas|pathlib|polars|pyarrow|torch|types|typing)\..*"),
    ("py:.*", r"Charts|Path|dict\[str"),  # of signatures with names that only type checkers import
    ("py:.*", r"fairfox\..*"),  # types in signatures that are not public
]

# Pages outside of docs/ that the site has a page for
OUTSIDE = {
    "../SECURITY.md": "security.md",
    "../CONTRIBUTING.md": "contributing.md",
    "../CHANGELOG.md": "changelog.md",
    "../benchmarks/README.md": "speed.md",
}

toc_object_entries = False
html_theme = "furo"
html_title = "fairfox"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False


def _inline_math(translator: HTML5Translator, node: nodes.math) -> None:
    """Write a formula as MathML, which browsers and screen readers know: no script, no network."""
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _display_math(translator: HTML5Translator, node: nodes.math_block) -> None:
    formula = convert(node.astext(), display="block")
    translator.body.append(f'<div class="math">{formula}</div>')
    raise nodes.SkipNode


def _set_aside(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Keep the sentence about an attribute from napoleon, which would take what stands before a colon for its type."""
    if what in ("attribute", "data", "property"):
        ASIDE[name] = lines[:]
        lines.clear()


def _written_plainly(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Let |effect| in a docstring be what it says; reStructuredText would look for a substitution."""
    lines[:] = ASIDE.pop(name, lines)
    lines[:] = [line if line.lstrip().startswith((">>>", "...")) else line.replace("|", r"\|") for line in lines]


def _with_options(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Add to a group of options what each of them means, as `fairfox audit --help` has it."""
    for group in GROUPS:
        if obj is group:
            lines += [f":param {f.name}: {f.metadata['help']}" for f in fields(group)]


def _inside(app: Sphinx, page: str, source: list[str]) -> None:
    """Let links to files outside of docs/ lead to the page of the site that includes them."""
    for path, name in OUTSIDE.items():
        source[0] = source[0].replace(f"]({path}", f"]({name}")


def setup(app: Sphinx) -> None:
    """Tell Sphinx how formulas and docstrings are written here."""
    app.add_html_math_renderer("mathml", (_inline_math, None), (_display_math, None))
    app.connect("source-read", _inside)
    app.connect("autodoc-process-docstring", _set_aside, priority=400)  # napoleon has 500
    app.connect("autodoc-process-docstring", _with_options)
    app.connect("autodoc-process-docstring", _written_plainly, priority=600)
