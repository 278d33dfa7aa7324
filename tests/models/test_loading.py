import pickle
import sys
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from populations import people
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support import audited

from fairfox.errors import FileError, ModelError, OptionError, UntrustedModelError
from fairfox.models.adapters import describe
from fairfox.models.loading import load_model, needs_trust

# --- code ----------------------------------------------------------------------------------------------------------


def test_a_function_in_a_file(tmp_path: Path):
    (tmp_path / "rules.py").write_text("def score(table):\n    return 7\n")
    model = load_model(f"{tmp_path}/rules.py:score")
    assert callable(model)
    assert model(None) == 7


def test_a_module_beside_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "my_rules_7.py").write_text("model = 7\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert load_model("my_rules_7:model") == 7


@pytest.mark.parametrize(
    ("code", "spec", "error", "message"),
    [
        ("score = 1", "rules.py:scor", OptionError, "has no 'scor'. Did you mean 'score'?"),
        ("score = 1", "rules.py", OptionError, "rules.py' is code; name the function in it: .*rules.py:function"),
        ("score = 1", "rules.py:", OptionError, "does not name a function; write module:function or file.py:function"),
        ("score = 1", "other.py:score", FileError, "There is no file '.*other.py'; give the path of the Python file"),
        ("1 / 0", "rules.py:score", ModelError, "rules.py' failed when imported: ZeroDivisionError: division by zero"),
        ("", "no_such_module_7:score", ModelError, "'no_such_module_7' failed when imported: ModuleNotFoundError"),
        ("", "json:dumbs", OptionError, r"'json' has no 'dumbs'\. Did you mean 'dumps'\?"),
        ("def (", "rules.py:score", ModelError, "rules.py' failed when imported: SyntaxError"),
    ],
)
def test_code_that_cannot_be_used_is_refused(
    tmp_path: Path, code: str, spec: str, error: type[Exception], message: str
):
    (tmp_path / "rules.py").write_text(code)
    with pytest.raises(error, match=message):
        load_model(spec if spec.startswith(("json", "no_such")) else f"{tmp_path}/{spec}")


# --- files ---------------------------------------------------------------------------------------------------------


def test_what_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(
        FileError, match=r"There is no model at '.*gone.pkl'; give a model file, module:function or file.py:function"
    ):
        load_model(str(tmp_path / "gone.pkl"))
    with pytest.raises(FileError, match="There is no model at"):
        load_model("m" * 5000)
    with pytest.raises(FileError, match="is a folder; give a model file"):
        load_model(str(tmp_path))


@pytest.mark.parametrize("name", ["model.pkl", "model.joblib", "model.unknown"])
@pytest.mark.parametrize("dump", [joblib.dump, lambda model, path: path.write_bytes(pickle.dumps(model))])
def test_a_trusted_pickle_is_loaded_however_it_was_written(tmp_path: Path, name: str, dump):
    columns = people()[["age", "debt"]]
    dump(LinearRegression().fit(columns, people()["income"]), tmp_path / name)
    model = load_model(str(tmp_path / name), trust=True)
    assert isinstance(model, LinearRegression)
    assert len(model.predict(columns)) == len(columns)


RUNS_CODE = [
    ("model.pkl", "a pickle"),
    ("model.pt2", "a torch.export archive"),
    ("model.pt", "a torch.save or TorchScript file"),
    ("model.PTH", "a torch.save or TorchScript file"),
    ("model.ckpt", "a torch.save or TorchScript file"),
]


@pytest.mark.parametrize(("name", "kind"), RUNS_CODE)
def test_files_that_can_run_code_are_refused_with_the_flag_that_allows_them(tmp_path: Path, name: str, kind: str):
    (tmp_path / name).write_bytes(b"PK\x03\x04 and so on")
    with pytest.raises(UntrustedModelError, match=f"'{name}' is {kind} and can run any code .* add --trust-model"):
        load_model(str(tmp_path / name))
    assert needs_trust(str(tmp_path / name))


@pytest.mark.parametrize(
    "name", ["m.safetensors", "m.onnx", "m.json", "m.ubj", "m.txt", "m.lgb", "m.cbm", "m.skops", "m.h5", "m.onnx#label"]
)
def test_files_without_code_and_code_that_is_named_need_no_trust(tmp_path: Path, name: str):
    (tmp_path / name.partition("#")[0]).write_text("{}")
    assert not needs_trust(str(tmp_path / name))
    assert not needs_trust("json:dumps")


@pytest.mark.parametrize("content", ["{}", "[1]", '{"kind": "mlp", "sizes": [3, 1]}', "[" * 100_000])
def test_json_that_is_no_model_is_refused(tmp_path: Path, content: str):
    (tmp_path / "model.json").write_text(content)
    with pytest.raises(OptionError, match=r"'model.json' is not an XGBoost or CatBoost model in JSON, or is damaged"):
        load_model(str(tmp_path / "model.json"))
    (tmp_path / "model.json").write_text('{"learner": ' + content)
    with pytest.raises(FileError, match=r"'model.json' is damaged or cut short: xgboost (says: |crashes)"):
        load_model(str(tmp_path / "model.json"))


def test_an_unknown_kind_of_file_is_refused(tmp_path: Path):
    (tmp_path / "model.docx").write_text("a model")
    with pytest.raises(
        OptionError, match=r"'model.docx' is not a model file fairfox can read; it reads .safetensors, .onnx"
    ):
        load_model(str(tmp_path / "model.docx"))


# --- MLflow --------------------------------------------------------------------------------------------------------

PEOPLE = people(60)
NUMBERS = PEOPLE[["income", "age", "debt"]]
GRANTED = (PEOPLE["income"] > 3100).to_numpy()


@pytest.fixture(scope="module")
def pipeline() -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(NUMBERS, GRANTED)


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
        str(tmp_path / "model"), python_model=str(tmp_path / "score.py"), signature=signature, pip_requirements=[]
    )
    model = load_model(str(tmp_path / "model"), trust=True)
    described = describe(model)
    assert described.kind == "table"
    assert described.names == ("debt", "income")
    result = audited(model, PEOPLE, protected="sex", refits=1)
    np.testing.assert_allclose(result.predictions.numpy(), 1 / (1 + np.exp(-(NUMBERS["income"] - 3100) / 300)))
