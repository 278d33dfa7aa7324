import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from fairfox.errors import DataError, FileError
from fairfox.fitting import fit_test
from fairfox.scale.job import ModelSource, columns_of, from_stream, plain, prepare, prepared
from fairfox.storage import save_test, to_bytes
from tests.scale.world import COLUMNS, MODEL, job_of, lending


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


def test_a_model_that_is_no_file_is_told_by_its_name():
    assert ModelSource("json:loads").shipped() == ModelSource("json:loads")
    assert ModelSource("json:loads").identity == {"name": "json:loads"}
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
        prepared(test, source, lambda columns: lending(20).select(["sex", *COLUMNS]), options={})
        for test in (fitted, to_bytes(fitted), tmp_path / "test.fox")
    ]
    assert len({job.digest for job in jobs}) == 1
    with pytest.raises(DataError, match="no rows"):
        prepare(to_bytes(fitted), fitted, source, lending(0), options={})


def test_dictionaries_become_what_they_stand_for():
    table = pa.table({"a": pa.array(["x", "y", "x"]).dictionary_encode(), "b": [1, 2, 3]})
    assert plain(table).equals(pa.table({"a": ["x", "y", "x"], "b": [1, 2, 3]}))


def test_views_become_what_rows_can_be_taken_from():
    views = pa.table({"a": pa.array(["x", "y"], pa.string_view()), "b": pa.array([b"x", b"y"], pa.binary_view())})
    assert plain(views).take([1]).equals(pa.table({"a": ["y"], "b": [b"y"]}))
