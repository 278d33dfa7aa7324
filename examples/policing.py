"""Policing: a model that never sees race is audited for race, on Chicago's police list or else on COMPAS."""

import sys

import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import fairfox
from fairfox.data.catalog import DATASETS
from fairfox.data.datasets import (
    CHICAGO_HIGH,
    CHICAGO_PREDICTORS,
    CHICAGO_RACE,
    CHICAGO_SCORE,
    COMPAS_LABEL,
    chicago_ssl_table,
    compas_table,
)
from fairfox.data.files import find_file
from fairfox.errors import FileError, OptionError

PLAIN, FLOORS = "without race", (1.0, 3.0)


def people():
    if find_file(DATASETS["chicago"].files[0]) is not None:
        table = chicago_ssl_table().to_pandas()
        table[CHICAGO_HIGH] = (table[CHICAGO_SCORE] >= 345).astype(int)
        columns = [*CHICAGO_PREDICTORS, CHICAGO_RACE, CHICAGO_HIGH]
        return "Chicago SSL", table[columns], CHICAGO_HIGH, f"{CHICAGO_RACE}=BLK"
    table = compas_table().to_pandas().drop(columns=["age_cat", "decile_score", "score_text"])  # COMPAS's own scores
    return "COMPAS", table, COMPAS_LABEL, "race=African-American"


def investigate(rows=4500, refits=5, seed=0):
    title, table, label, protected = people()
    table = table.sample(min(rows, len(table)), random_state=seed).reset_index(drop=True)
    past, new = table[: 2 * len(table) // 3], table[2 * len(table) // 3 :]
    inputs = past.drop(columns=[label, protected.partition("=")[0]])
    texts = list(inputs.select_dtypes(exclude="number"))
    encode = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), texts), remainder="passthrough")
    booster = HistGradientBoostingClassifier(max_iter=60, learning_rate=0.05, random_state=seed)
    models = {PLAIN: make_pipeline(encode, booster).fit(inputs, past[label])}
    hide = {"label": label, "protected": protected, "seed": seed}
    models |= {f"hiding it, floor {floor:g}": fairfox.train_fair(past, floor=floor, **hide) for floor in FLOORS}
    ask = {"reference": past, **hide}
    try:
        unaware = fairfox.audit(models[PLAIN], new, test="unawareness", **ask).summary()
    except OptionError as error:  # race is no input
        unaware = str(error)
    audits = {each: fairfox.audit(model, new, options={"refits": refits}, **ask) for each, model in models.items()}
    worst = audits[PLAIN].people.nlargest(3, "score")[["row_id", "effect", "lower", "upper"]]
    return {
        "table": title,
        "unawareness": unaware,
        "summary": audits[PLAIN].summary(),
        "most_affected": worst.to_dict("records"),
        "models": {each: numbers(result, new[label]) for each, result in audits.items()},
    }


def numbers(result, label):
    """Return what one model is like and how it treats people."""
    predictions, groups = result.predictions, result.groups.to_dict("records")
    out = {"accuracy": float(((predictions > 0.5) == (label == 1)).mean()), "AUC": roc_auc_score(label, predictions)}
    for name in ("prediction", "effect"):
        out |= {f"mean {name}, {group['level']}": group[f"mean_{name}"] for group in groups}
    return out | {name: float(result.people[name].mean()) for name in ("flagged", "confident", "significant")}


def tell(found):
    beside, worst = (pd.DataFrame(found[part]).round(3).to_string() for part in ("models", "most_affected"))
    return "\n\n".join([f"{found['table']}: {found['unawareness']}", found["summary"], worst, beside])


def main():
    try:
        print(tell(investigate()))
    except FileError as error:  # the data are not available
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
