import pickle
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pytest

from fairfox.errors import ColumnError, DataError, FileError
from fairfox.fitting import fit_test
from fairfox.scale.job import ModelSource, columns_of, from_stream, job_for, plain, prepare
from fairfox.storage import save_test, to_bytes
from tests.scale.world import COLUMNS, MODEL, job_of, lending


def predict_half(table):
    return [0.5] * len(table)


def test_a_model_file_goes_with_the_job_and_is_told_by_its_content(tmp_path: Path):
    (tmp_path / "model.py").write_text(MODEL)
    source = ModelSource(str(tmp_path / "model.py:predict"))
    shipped = pickle.loads(pickle.dumps(source.shipped()))
    assert shipped.identity == source.identity
    assert source.identity["name"] == "model.py:predict"
    (tmp_path / "model.py").write_text(MODEL + "# another")
    assert source.identity != shipped.identity
    (tmp_path / "model.py").unlink()
    assert shipped.load()({"income": 30_000}) == pytest.approx(0.5)
    with pytest.raises(FileError, match="No file"):
        source.load()


def test_a_function_of_a_module_is_told_by_the_module_s_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scorecard_of_ours.py").write_text(MODEL)
    source = ModelSource("scorecard_of_ours:predict")
    expected = {"name": "scorecard_of_ours:predict", "sha256": sha256(MODEL.encode()).hexdigest()}
    assert source.shipped() == source
    assert source.identity == expected
    (tmp_path / "scorecard_of_ours.py").write_text(MODEL + "# another")
    assert source.identity["name"] == expected["name"]
    assert source.identity["sha256"] != expected["sha256"]
    assert "scorecard_of_ours" not in sys.modules


def test_a_model_without_a_file_is_told_by_its_name():
    assert ModelSource("sys:getsizeof").identity == {"name": "sys:getsizeof"}
    assert ModelSource("https://models.example/a/invocations").identity == {
        "name": "https://models.example/a/invocations"
    }
    assert ModelSource("dict", pickled=pickle.dumps({"a": 1})).load() == {"a": 1}


def test_a_folder_is_told_by_its_files_and_what_is_no_file_by_all_of_its_name(tmp_path: Path):
    for name in ("one", "two"):
        (tmp_path / name / "model/data").mkdir(parents=True)
        (tmp_path / name / "model/MLmodel").write_text("flavors: {}")
        (tmp_path / name / "model/data/weights").write_text(name)
    one, two = (ModelSource(str(tmp_path / name / "model")) for name in ("one", "two"))
    assert one.identity != two.identity
    before = one.identity
    (tmp_path / "one/model/data/weights").write_text("others")
    assert one.identity["sha256"] != before["sha256"]
    (tmp_path / "one/model/data/weights").rename(tmp_path / "one/model/data/moved")
    moved = one.identity
    (tmp_path / "one/model/data/moved").write_text("one")
    assert len({source["sha256"] for source in (before, moved, one.identity, two.identity)}) == 4
    assert ModelSource("models:/a/1").identity != ModelSource("models:/b/1").identity


def test_jobs_with_other_options_of_an_endpoint_are_others(tmp_path: Path):
    job = job_of(fit_test(lending(60), protected="sex", columns=COLUMNS, refits=1), lending(20), tmp_path)
    sources = [replace(job.model, **given) for given in ({}, {"trust": True}, {"endpoint": {"timeout": 3.0}})]
    assert len({replace(job, model=source).digest for source in sources}) == 3


def test_only_columns_that_count_are_read(tmp_path: Path):
    given = {"columns": COLUMNS, "refits": 1}
    fitted = fit_test(lending(60), protected=["sex", "tenure_years<5"], label="approved", id="name", **given)
    assert columns_of(fitted) == ("income", "debt_ratio", "sex", "tenure_years", "approved", "name")


def test_the_example_has_somebody_for_every_column_that_misses_values(tmp_path: Path):
    people = lending(200)
    holes = pa.array([None if n == 150 else text for n, text in enumerate(people["sex"].to_pylist())])
    people = people.set_column(people.column_names.index("sex"), "sex", holes)
    fitted = fit_test(lending(60), protected="sex", columns=COLUMNS, refits=1)
    example = from_stream(job_of(fitted, people, tmp_path).example)
    assert len(example) == 51
    assert example.get_column("sex").to_list()[-1] is None


def test_a_test_comes_as_a_file_as_bytes_or_fitted(tmp_path: Path):
    fitted = fit_test(lending(60), protected="sex", columns=COLUMNS, refits=1)
    save_test(fitted, tmp_path / "test.fox")
    (tmp_path / "model.py").write_text(MODEL)
    source = ModelSource(str(tmp_path / "model.py:predict"))
    jobs = [
        job_for(test, source.spec, lambda columns: lending(20).select(["sex", *COLUMNS]), dumps=pickle.dumps)
        for test in (fitted, to_bytes(fitted), tmp_path / "test.fox")
    ]
    assert len({job.digest for job in jobs}) == 1
    with pytest.raises(DataError, match="no rows"):
        prepare(to_bytes(fitted), fitted, source, lending(0), options={})
    with pytest.raises(ColumnError, match="no column that the test was fitted on, such as 'income'"):
        prepare(to_bytes(fitted), fitted, source, lending(5).select([]), options={})


def test_a_model_comes_as_a_name_a_path_or_an_object(tmp_path: Path):
    fitted = fit_test(lending(60), protected="sex", columns=COLUMNS, refits=1)
    (tmp_path / "model.py").write_text(MODEL)
    name = str(tmp_path / "model.py:predict")
    given = {"dumps": pickle.dumps, "delta": 0.3, "trust": True}
    named, path, object_ = (
        job_for(fitted, model, lambda columns: lending(20).select(columns), **given)
        for model in (name, Path(name), predict_half)
    )
    assert named == path
    assert named.model.content == MODEL.encode()  # it goes with the job
    assert named.model.trust
    assert named.settled.delta == 0.3
    assert object_.model == ModelSource("function", pickled=pickle.dumps(predict_half))


def test_dictionaries_become_what_they_stand_for():
    table = pa.table({"a": pa.array(["x", "y", "x"]).dictionary_encode(), "b": [1, 2, 3]})
    assert plain(table).equals(pa.table({"a": ["x", "y", "x"], "b": [1, 2, 3]}))


def test_views_become_what_rows_can_be_taken_from():
    views = pa.table({"a": pa.array(["x", "y"], pa.string_view()), "b": pa.array([b"x", b"y"], pa.binary_view())})
    assert plain(views).take([1]).equals(pa.table({"a": ["y"], "b": [b"y"]}))
