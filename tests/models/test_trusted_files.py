from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from populations import people
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fairfox
from fairfox.errors import FileError, MissingExtraError, UntrustedModelError
from fairfox.models.loading import load_model
from fairfox.models.wrap import describe

PEOPLE = people(60)
NUMBERS = PEOPLE[["income", "age", "debt"]]
GRANTED = (PEOPLE["income"] > 3100).to_numpy()


@pytest.fixture(scope="module")
def pipeline() -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(NUMBERS, GRANTED)


# --- MLflow --------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::UserWarning:mlflow", "ignore::FutureWarning:mlflow")
def test_an_mlflow_model_of_a_known_library_is_taken_as_it_is(tmp_path: Path, pipeline: Any):
    sklearn = pytest.importorskip("mlflow.sklearn")
    trusted = {"serialization_format": "cloudpickle", "pip_requirements": []}
    sklearn.save_model(pipeline, str(tmp_path / "model"), **trusted)
    with pytest.raises(UntrustedModelError, match=r"'model' is an MLflow model .* add --trust-model"):
        load_model(str(tmp_path / "model"))
    model: Any = load_model(str(tmp_path / "model"), trust=True)
    np.testing.assert_array_equal(model.predict_proba(NUMBERS), pipeline.predict_proba(NUMBERS))


SCORE = """
import mlflow
import numpy as np
import pandas as pd


class Score(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input: pd.DataFrame, params=None):
        return 1 / (1 + np.exp(-(model_input["income"] - 3100) / 300))


mlflow.models.set_model(Score())
"""


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning:mlflow")
def test_an_mlflow_function_takes_the_columns_of_its_signature(tmp_path: Path):
    mlflow = pytest.importorskip("mlflow")
    (tmp_path / "score.py").write_text(SCORE)
    signature = mlflow.models.infer_signature(NUMBERS[["debt", "income"]], GRANTED.astype(float))
    mlflow.pyfunc.save_model(
        str(tmp_path / "model"),
        python_model=str(tmp_path / "score.py"),
        signature=signature,
        pip_requirements=[],
    )
    model = load_model(str(tmp_path / "model"), trust=True)
    described = describe(model)
    assert described is not None
    assert described.kind == "table"
    assert described.names == ("debt", "income")
    result = fairfox.audit(model, PEOPLE, protected="sex", refits=1)
    np.testing.assert_allclose(result.predictions.numpy(), 1 / (1 + np.exp(-(NUMBERS["income"] - 3100) / 300)))


def test_a_folder_that_mlflow_cannot_read_is_refused(tmp_path: Path):
    pytest.importorskip("mlflow")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "MLmodel").write_text("flavors: {}")
    with pytest.raises(FileError, match="'model' could not be loaded: "):
        load_model(str(tmp_path / "model"), trust=True)


# --- Keras ---------------------------------------------------------------------------------------------------------


def test_without_keras_a_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "keras", None)
    (tmp_path / "model.keras").write_bytes(b"PK")
    with pytest.raises(MissingExtraError, match=r"'keras' is needed to load 'model.keras' .* run: pip install keras"):
        load_model(str(tmp_path / "model.keras"), trust=True)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
def test_a_keras_model_takes_a_matrix(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras")
    net = keras.Sequential([keras.Input((3,)), keras.layers.Rescaling(1e-4), keras.layers.Dense(1, "sigmoid")])
    net.save(tmp_path / name)
    with pytest.raises(UntrustedModelError, match=f"'{name}' is a Keras model .* add --trust-model"):
        load_model(str(tmp_path / name))
    described = describe(load_model(str(tmp_path / name), trust=True))
    assert described is not None
    assert (described.kind, described.width) == ("matrix", 3)
    expected = net.predict(NUMBERS.to_numpy(np.float32), verbose=0)
    np.testing.assert_allclose(described.predict(NUMBERS.to_numpy()), expected, rtol=1e-5)
