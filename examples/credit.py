"""Credit: a model that sees neither sex nor age is audited for both; awareness, which knows neither, beside it."""

import sys

import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import fairfox
from fairfox.benchmark.judge import spearman
from fairfox.data.datasets import GERMAN_LABEL, GERMAN_SEX, GERMAN_STATUS, german_table
from fairfox.errors import FileError

PROTECTED = (GERMAN_SEX, "age<25")
PLAIN, FAIR = "without sex and age", "hiding both"


def people():
    table = german_table().to_pandas().drop(columns=GERMAN_STATUS)  # marital status reveals sex
    table[GERMAN_LABEL] = (table[GERMAN_LABEL] == "good").astype(int)
    return table


def investigate(rows=1000, refits=3, seed=0):
    table = people().sample(rows, random_state=seed).reset_index(drop=True)
    past, new = table[: 6 * rows // 10], table[6 * rows // 10 :]
    inputs = past.drop(columns=[GERMAN_LABEL, GERMAN_SEX, "age"])
    texts = list(inputs.select_dtypes(exclude="number"))
    encode = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), texts), remainder="passthrough")
    booster = HistGradientBoostingClassifier(max_iter=60, learning_rate=0.05, random_state=seed)
    fair = fairfox.train_fair(past, label=GERMAN_LABEL, protected=PROTECTED, seed=seed)
    models = {PLAIN: make_pipeline(encode, booster).fit(inputs, past[GERMAN_LABEL]), FAIR: fair}
    ask = {"protected": PROTECTED, "label": GERMAN_LABEL, "reference": past, "seed": seed}
    audits = {name: fairfox.audit(model, new, options={"refits": refits}, **ask) for name, model in models.items()}
    aware = fairfox.audit(models[PLAIN], new, test="fta", options={"refits": 1}, **ask)  # it has nothing to fit
    return {
        "summary": audits[PLAIN].summary(),
        "through": {group: carriers(each) for group, each in audits[PLAIN].record.effect_by_group.items()},
        "flagged": {"rank": float(audits[PLAIN].flagged.mean()), "fta": float(aware.flagged.mean())},
        "agreement": {f.name: spearman(aware.record.scores, f.scores) for f in audits[PLAIN].record.findings},
        "models": {name: numbers(result, new[GERMAN_LABEL]) for name, result in audits.items()},
    }


def carriers(effects, count=3):
    """Return the features with the largest mean effects."""
    return dict(sorted(effects.items(), key=lambda pair: -abs(pair[1]))[:count])


def numbers(result, label):
    """Return what one model is like and how it treats people."""
    predictions, groups = result.predictions, result.groups.to_dict("records")
    out = {"accuracy": float(((predictions > 0.5) == (label == 1)).mean()), "AUC": roc_auc_score(label, predictions)}
    for name in ("prediction", "effect"):
        out |= {f"mean {name}, {group['level']}": group[f"mean_{name}"] for group in groups}
    return out | {name: float(result.people[name].mean()) for name in ("flagged", "confident", "significant")}


def tell(found):
    lines = [f"{g}: {', '.join(f'{f} {v:+.3f}' for f, v in each.items())}" for g, each in found["through"].items()]
    lines += [f"Flagged by {test}: {share:.1%}" for test, share in found["flagged"].items()]
    lines += [f"Rank correlation of fta with the effect of {c}: {rho:.2f}" for c, rho in found["agreement"].items()]
    return "\n\n".join([found["summary"], "\n".join(lines), pd.DataFrame(found["models"]).round(3).to_string()])


def main():
    try:
        print(tell(investigate()))
    except FileError as error:  # the data are not available
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
