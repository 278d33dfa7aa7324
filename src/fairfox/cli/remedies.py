"""`fairfox repair` and `fairfox alternatives MODEL TABLE`: what to do after an audit that failed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from fairfox.cli import options as cli
from fairfox.cli.progress import progress_bar, say
from fairfox.options import MODEL, NOT_OF_REPAIR, PROTECTED, RULE, AuditOptions

_NOT_HERE = {*NOT_OF_REPAIR, "protected_from"}
_OPTIONS = tuple(name for name in cli.DECLARED if name not in _NOT_HERE)
_FILE = click.Path(path_type=Path, dir_okay=False)
_STRENGTH = "How much to repair: 1 takes away about 80 % of the mean effect, 0 nothing."
_PROTECTED = "Let the repaired model take the protected column. In lending or hiring this may be unlawful."
_RATE = "Reset the threshold for a yes, so that as many people of TABLE get one as before."
_CANDIDATE = "A model of your own to try: a file, or code. Can be given several times."
_LOSS = "How much performance the best alternative may lose: in AUC, or as a share of a log-loss or RMSE."
_ALTERNATIVES = "Folder for alternatives.json, alternatives.csv and alternatives.svg."


@click.command(cls=cli.Grouped, short_help="Repair a model without training it again, and save the repair.")
@click.argument("model")
@click.argument("table", type=click.Path(path_type=Path))
@cli.audit_options(*_OPTIONS)
@cli.once("--strength", cli.FiniteRange(0, 1), "S", _STRENGTH, default="1", show_default=True, section=MODEL)
@cli.switch("--use-protected", _PROTECTED, section=PROTECTED)
@cli.switch("--keep-rate", _RATE, section=RULE)
@cli.trust_option
@cli.once("-o --out", _FILE, "FILE", "File to write.", default="repaired.fox", show_default=True)
def repair(
    model: str,
    table: Path,
    *,
    strength: float,
    use_protected: bool,
    keep_rate: bool,
    trust_model: bool,
    out: Path,
    **values: Any,
) -> None:
    """Repair MODEL: learn from TABLE a correction, so that people and their counterfactual rows get nearly the same.

    MODEL is a model file, and is not trained again. The repair's file holds the maps and the SHA-256 of MODEL, but not
    MODEL itself. `fairfox audit MODEL TABLE --repair FILE` audits the two together; take other people for it.
    """
    from fairfox.data.files import file_sha256, keep_inputs
    from fairfox.errors import FileError
    from fairfox.models.loading import load_model
    from fairfox.remedies.repair import repair_with

    keep_inputs([out], table, model)
    if file_sha256(model) is None:
        raise FileError(
            f"'{model}' is not a file, and a repair is stored for a model file; give one, such as skops or ONNX"
        )
    options, target = AuditOptions(**cli.given_options(values)), load_model(model, trust=trust_model)
    repaired = repair_with(target, table, options, strength=strength, use_protected=use_protected, keep_rate=keep_rate)
    repaired.save(out, model=model)
    correction, known = repaired.correction, repaired.correction.test.known
    protected = ", ".join(p.name for p in known.protected)
    say(f"The repair was learnt from {len(known):,} people, protected: {protected}.", err=False)
    if correction.threshold is not None:
        say(f"A yes is now a prediction of {correction.threshold:.4g} or more.", err=False)
    say(f"Written: {out}")


@click.command(cls=cli.Grouped, short_help="Find less unequal alternatives to a model, and what they cost.")
@click.argument("model")
@click.argument("table", type=click.Path(path_type=Path))
@cli.audit_options(*(name for name in _OPTIONS if name not in ("refits", "decision_threshold")), "delta", "max_minutes")
@click.option("--candidate", multiple=True, cls=cli.Option, metavar="MODEL", section=MODEL, help=_CANDIDATE)
@cli.once(
    "--max-loss", cli.FiniteRange(0, 1, max_open=True), "L", _LOSS, default="0.005", show_default=True, section=RULE
)
@cli.reference_option
@cli.trust_option
@cli.once("--out", cli.FOLDER, "DIR", _ALTERNATIVES, default="fairfox-alternatives", show_default=True)
def alternatives(
    model: str,
    table: Path,
    *,
    candidate: tuple[str, ...],
    max_loss: float,
    reference: Path | None,
    trust_model: bool,
    out: Path,
    **values: Any,
) -> None:
    """Find less unequal alternatives to MODEL on the people of TABLE: repairs, features dropped or repaired, networks
    that hide the protected column, and your own candidates. Needs --label.

    Candidates learn from --reference, or else from one half of the people, and are measured on the other half.
    """
    from fairfox.data.files import file_sha256, keep_inputs
    from fairfox.models.loading import load_model
    from fairfox.remedies.alternatives import FILES
    from fairfox.remedies.alternatives import alternatives as find

    keep_inputs([out / name for name in FILES], table, reference, model, *candidate)
    options, own = cli.given_options(values), ("protected", "label", "delta", "given", "columns", "seed")
    named: dict[str, Any] = {"label": None, **{name: options.pop(name) for name in own if name in options}}
    with progress_bar(Console(stderr=True)) as progress:
        target, *others = (load_model(spec, trust=trust_model) for spec in (model, *candidate))
        found = find(
            target, table, **named, candidates=dict(zip(candidate, others, strict=True)), max_loss=max_loss,
            reference=reference, options=options, progress=progress,
        )  # fmt: skip
    found = replace(found, settings={**found.settings, "model_sha256": file_sha256(model)})
    paths = found.write(out)
    say(*found.summary().splitlines(), err=False)
    say("Written: " + ", ".join(map(str, paths)))
