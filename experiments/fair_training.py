"""What hiding c costs and brings: accuracy and the mean *true* score |f(x) - f(x')| of targets by how much they hide.

The paper tuned its adversarial regularisation on the synthetic settings, since only there both are known. Here the
floor of the adversary's weight is what decides; "plain" targets hide nothing, and beside them stands a target that
cannot see c at all, because its first layer removes what depends on c. All targets of a setting and seed train at once,
in one job: settings with the outer product have up to 1 470 columns, and more members at once outgrow the cache.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from real_data import FLOORS, Floor, floor_name
from runner import Experiment, Folders, Found, Job, pick
from settings import ROWS, SETTINGS, TARGETS, Rows, Setting, Sources, Target
from trials import balanced_accuracy, generate, generator_job, load_generator, seed_of, train_shape
from wording import bar, held

from fairfox.auxiliary.adversarial import HidingSettings, train_networks
from fairfox.benchmark.truth import individual_fairness_score
from fairfox.data.dataset import Dataset
from fairfox.models.protocol import Model, Output, predict
from fairfox.models.torch import TorchModel
from fairfox.remedies.hiding import measure

Numbers = dict[str, float]  # what is measured of one target

JUDGED: Floor = 3.0  # the floor that bars speak of: what `train_fair` does unless told
CLOSE = 0.05  # in the AUC of the label, to a target that cannot see c
BLIND = "cannot see c"
MEASURES = ("accuracy", "balanced_accuracy", "auc", "c_auc", "gap", "mean_ifs")


@dataclass(frozen=True)
class FairTraining:
    """Which targets are trained: one for each setting, floor and seed, and one for each seed that cannot see c."""

    settings: tuple[Setting, ...] = SETTINGS
    floors: tuple[Floor, ...] = FLOORS
    seeds: int = 5
    rows: Rows = ROWS
    sources: Sources = Sources()  # noqa: RUF009
    blind: Target = TARGETS[0]  # the shape of those that cannot see c
    hiding: HidingSettings | None = None  # the usual ones


FULL = FairTraining()
QUICK = FairTraining(
    settings=SETTINGS[3:4],
    floors=(None, 0.0, JUDGED),
    seeds=1,
    rows=Rows(1_200, 300, 500),
    sources=Sources(rows=1_500, steps=300, pairs=500, models=1),
    hiding=HidingSettings(epochs=8, batch_size=64, decay=0.3),  # few epochs, so that alpha must fall faster
)


def jobs(plan: FairTraining, seed: int) -> list[Job]:
    """Return one job per setting and seed, the longest first; people and generators are those of Table 1."""
    out = []
    for setting in sorted(plan.settings, key=lambda one: (one.fusion == "concat", one.c == "magic")):
        after = (generator_job(setting, plan.sources, seed),)
        for number in range(plan.seeds):
            name, people_seed = _name(setting, number), seed_of(seed, setting.name)
            arguments = (setting, plan.floors, plan.hiding, plan.blind, plan.rows, people_seed, seed_of(seed, name))
            out.append(Job(name, train_and_measure, arguments, after=after))
    return out


def _name(setting: Setting, number: int) -> str:
    return f"hiding-{setting.name}-{number}"


def train_and_measure(
    folder: Path,
    needed: Folders,
    setting: Setting,
    floors: Sequence[Floor],
    hiding: HidingSettings | None,
    blind: Target,
    rows: Rows,
    people_seed: int,
    seed: int,
) -> dict[str, Any]:
    """Return what is measured of the target of each floor and of one that cannot see c.

    All floors start from the same weights and see the same minibatches.
    """
    fitting, people = generate(needed[0], setting.fusion, setting.bias, rows, people_seed)
    nets = train_networks(fitting, floors=floors, seeds=[seed] * len(floors), settings=hiding)
    models = {floor_name(f): TorchModel(net, output=Output("logit")) for f, net in zip(floors, nets, strict=True)}
    projection = load_generator(needed[0]).keep_y(setting.fusion)
    models[BLIND] = train_shape(fitting, blind, rows, seed, projection=projection)
    return {"columns": people.x.shape[1], "targets": {name: numbers(model, people) for name, model in models.items()}}


def numbers(model: Model, people: Dataset) -> Numbers:
    """Return how good a target is, what its output tells of c, and how differently it truly treats people."""
    found = measure(predict(model, people.x), people)
    (leak,) = found.leaks
    return {
        "accuracy": found.accuracy,
        "balanced_accuracy": balanced_accuracy(model, people.x, people.y),
        "auc": found.auc,
        "c_auc": leak.auc,
        "gap": leak.gap,
        "mean_ifs": float(individual_fairness_score(model, people).double().mean()),
    }


def gather(plan: FairTraining, found: Found, about: dict[str, Any]) -> dict[str, Any]:
    """Return mean and standard deviation over the seeds, per setting and floor, and what they have to show."""
    results, blind = [], []
    for setting in plan.settings:
        each = [found[_name(setting, number)] for number in range(plan.seeds)]
        of = {name: moments([one["targets"][name] for one in each]) for name in each[0]["targets"]}
        results += [{"setting": setting.name, "floor": f, **of[floor_name(f)]} for f in plan.floors]
        blind.append({"setting": setting.name, "columns": each[0]["columns"], **of[BLIND]})
    return {"results": results, "blind": blind, "bars": bars(results, blind)}


def moments(each: Sequence[Numbers]) -> Numbers:
    """Return mean and standard deviation of every number over the seeds."""
    out: Numbers = {}
    for name in MEASURES:
        own = [one[name] for one in each]
        out |= {f"{name}_mean": fmean(own), f"{name}_std": stdev(own) if len(own) > 1 else 0.0}
    return out


def bars(results: Sequence[dict[str, Any]], blind: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what hiding has to show at the floor that is used by default, beside plain targets and blind ones."""
    names = [one["setting"] for one in blind]
    pairs = {
        measure: {name: [_mean(results, name, floor, measure) for floor in (None, JUDGED)] for name in names}
        for measure in ("mean_ifs", "c_auc")
    }
    behind = {
        one["setting"]: one["auc_mean"] - _mean(results, one["setting"], JUDGED, "auc")
        for one in blind  # labels are uneven: the AUC tells more of what was learnt than shares of right answers
    }
    words = f"from the plain target to floor {floor_name(JUDGED)} in every setting"
    return [
        bar(f"the mean true score falls {words}", pairs["mean_ifs"], _all_fall(pairs["mean_ifs"])),
        bar(f"the AUC of c from the output falls {words}", pairs["c_auc"], _all_fall(pairs["c_auc"])),
        bar(
            f"at floor {floor_name(JUDGED)} the AUC of the label is at most {CLOSE:g} below that of a target that "
            f"{BLIND}, in every setting",
            behind,
            all(gap <= CLOSE for gap in behind.values()),
        ),
    ]


def _mean(results: Sequence[dict[str, Any]], setting: str, floor: Floor, measure: str) -> float:
    own = next(one for one in results if (one["setting"], one["floor"]) == (setting, floor))
    return float(own[f"{measure}_mean"])


def _all_fall(pairs: dict[str, list[float]]) -> bool:
    return all(hiding < plain for plain, hiding in pairs.values())


def show(found: dict[str, Any]) -> str:
    """Return what has to be shown as Markdown; the picture has the numbers."""
    return held(found)


def chart(found: dict[str, Any]) -> Any:
    """Return accuracy, the label's AUC and the mean true score by floor, a panel for each setting."""
    import altair as alt

    shown = {"accuracy": "accuracy", "auc": "AUC of the label", "mean_ifs": "mean true score"}
    rows = [
        {
            "setting": one["setting"],
            "floor": floor_name(one["floor"]),
            "what": words,
            "mean": one[f"{name}_mean"],
            "low": one[f"{name}_mean"] - one[f"{name}_std"],
            "high": one[f"{name}_mean"] + one[f"{name}_std"],
            "blind": blind["auc_mean"],
        }
        for one in found["results"]
        for blind in found["blind"]
        for name, words in shown.items()
        if blind["setting"] == one["setting"]
    ]
    order = list(dict.fromkeys(row["floor"] for row in rows))
    base = alt.Chart().encode(
        x=alt.X("floor:O", sort=order, title="floor", axis=alt.Axis(labelAngle=0)),
        color=alt.Color(
            "what:N", title=None, scale=alt.Scale(domain=[*shown.values()], range=["#0072b2", "#009e73", "#d55e00"])
        ),
    )
    lines = base.mark_line(point=True).encode(y=alt.Y("mean:Q", title=None, scale=alt.Scale(domain=[0, 1])))
    spread = base.mark_rule().encode(y="low:Q", y2="high:Q")
    reference = alt.Chart().mark_rule(strokeDash=[4, 3], color="#777").encode(y="mean(blind):Q")
    return (
        alt.layer(lines, spread, reference, data=alt.InlineData(values=rows))
        .properties(width=180, height=140)
        .facet(facet=alt.Facet("setting:N", title=None), columns=4)
        .properties(title=f"dashed: AUC of the label of a target that {BLIND}")
    )


EXPERIMENT = Experiment(
    name="fair_training",
    description="Accuracy and mean true score of targets by how much they hide c, on the settings of Table 1.",
    full=FULL,
    quick=QUICK,
    jobs=jobs,
    gather=gather,
    show=show,
    narrow=pick("settings", "setting"),
    draw=lambda found: {"": chart(found)},
    parts_with="table1",
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.run())
