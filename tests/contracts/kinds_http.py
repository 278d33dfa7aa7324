"""Models behind a URL, each on a real server of its own that is started when the kind is first built."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
from contracts.kinds import GRANTED, NUMBERS, Kind, hist_boosting, mixed, numeric, pipeline, same_rule
from servers import open_inference, start, start_mlflow

from fairfox.models.http import Endpoint


def v2(predict: Callable[[pd.DataFrame], np.ndarray], inputs: list[tuple[str, str, list[int]]]) -> Endpoint:
    """Return an endpoint that gives both classes' probabilities for a table, sent as these inputs."""

    def served(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if set(given) == {"matrix"}:
            table = pd.DataFrame(given["matrix"], columns=NUMBERS.columns)
        else:
            table = pd.DataFrame({name: given[name].reshape(-1) for name, _, _ in inputs})
        chances = predict(table)
        return {"label": chances.argmax(1), "probability": chances}

    return Endpoint(f"{start(open_inference(served, inputs)).root}/v2/models/rule/infer")


def each(**datatypes: str) -> list[tuple[str, str, list[int]]]:
    return [(name, datatype, [-1]) for name, datatype in datatypes.items()]


def forest() -> Kind:
    """Return boosted trees on numbers, of which some are missing, and a boolean."""
    frame = numeric()
    fitted = hist_boosting().fit(frame, GRANTED)
    endpoint = v2(fitted.predict_proba, each(income="FP64", age="FP64", debt="FP64", member="BOOL"))
    return Kind(endpoint, fitted.predict_proba(frame)[:, 1], mixed()[["sex", *frame]])


@cache
def mlflow_server() -> str:
    return start_mlflow(pipeline())


def chances(table: pd.DataFrame) -> Any:
    return pipeline().predict_proba(table)


KINDS: dict[str, Callable[[], Kind]] = {
    "Open Inference server on a matrix": lambda: same_rule(v2(chances, [("matrix", "FP64", [-1, 3])])),
    "Open Inference server on columns": lambda: same_rule(v2(chances, each(income="FP64", age="FP64", debt="FP64"))),
    "Open Inference server of trees": forest,
}
if find_spec("mlflow"):
    KINDS["MLflow server"] = lambda: same_rule(Endpoint(mlflow_server()))
