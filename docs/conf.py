"""How the docs site is built: `make docs`."""

from __future__ import annotations

import inspect
from dataclasses import fields
from importlib.metadata import version as version_of

import click
from docutils import nodes
from docutils.parsers.rst import Directive
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

from fairfox.choices.tests import FAIR_TESTS
from fairfox.cli.main import cli
from fairfox.options import GROUPS, SECTIONS

project = "fairfox"
author = "The fairfox authors"
copyright = f"2026, {author}"
version = release = version_of("fairfox")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["amsmath", "dollarmath"]
myst_heading_anchors = 4
exclude_patterns = ["_build"]
smartquotes = False  # --option and 'name' stay as they are typed
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


class CommandLine(Directive):
    """Every command with its options, as click has them."""

    def run(self) -> list[nodes.Node]:
        """Return a section for each command."""
        top = click.Context(cli, info_name="fairfox")
        return [self._section(name, cli.get_command(top, name), top) for name in cli.list_commands(top)]

    def _section(self, name: str, command: click.Command | None, top: click.Context) -> nodes.section:
        assert command is not None
        context = click.Context(command, info_name=name, parent=top)
        section = nodes.section(ids=[f"fairfox-{name}"], names=[f"fairfox {name}"])
        section += nodes.title(text=f"fairfox {name}")
        usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
        section += nodes.literal_block(usage, usage, language="text")
        section += [nodes.paragraph(text=text) for text in inspect.cleandoc(command.help or "").split("\n\n")]
        by_heading = {heading: nodes.definition_list() for heading in (*SECTIONS, "Options")}
        for option in command.get_params(context):
            record = option.get_help_record(context)
            if record is not None and record[1]:
                term = nodes.term("", "", nodes.literal(text=record[0]))
                meaning = nodes.definition("", nodes.paragraph(text=record[1]))
                by_heading[getattr(option, "section", "Options")] += nodes.definition_list_item("", term, meaning)
        for heading, options in by_heading.items():
            section += [nodes.rubric(text=heading), options] if len(options) else []
        return section


class FairnessTests(Directive):
    """Every fairness test with its meaning, unit, default delta and variants, as the code has them."""

    def run(self) -> list[nodes.Node]:
        """Return a table, a row for each test."""
        rows = [("test", "what the number means", "unit", "delta", "variants")]
        for name, test in FAIR_TESTS.items():
            if name == test.base:
                variants = ", ".join(other for other, one in FAIR_TESTS.items() if one.base == name != other)
                rows.append((name, test.meaning, test.unit, str(test.delta), variants))
        group = nodes.tgroup("", *(nodes.colspec(colwidth=width) for width in (2, 6, 3, 1, 2)), cols=5)
        head, *body = [nodes.row("", *(nodes.entry("", nodes.paragraph(text=c)) for c in row)) for row in rows]
        group += [nodes.thead("", head), nodes.tbody("", *body)]
        return [nodes.table("", group)]


def setup(app: Sphinx) -> None:
    """Tell Sphinx how formulas and docstrings are written here."""
    app.add_html_math_renderer("mathml", (_inline_math, None), (_display_math, None))
    app.add_directive("command-line", CommandLine)
    app.add_directive("fairness-tests", FairnessTests)
    app.connect("autodoc-process-docstring", _set_aside, priority=400)  # napoleon has 500
    app.connect("autodoc-process-docstring", _with_options)
    app.connect("autodoc-process-docstring", _written_plainly, priority=600)
