import json
import pickle
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from sklearn.tree import DecisionTreeClassifier

from fairfox.cli.audit import sampled
from fairfox.cli.main import cli
from fairfox.data.table import load_table
from fairfox.errors import FileError
from tests.support import ended, example_table, refusal_of

pytestmark = [pytest.mark.brief, pytest.mark.usefixtures("undrawn")]


def run(folder: Path, *options: str, model: str = "model.py:score", table: str = "people.csv") -> Result:
    named = [str(folder / model), str(folder / table)]
    return CliRunner().invoke(cli, ["audit", *named, "--out", str(folder / "out"), *options])


def assert_refused(done: Result, folder: Path, message: str) -> None:
    assert message in refusal_of(done)
    assert not (folder / "out").exists()


def test_an_audit_prints_the_verdict_and_writes_six_files(folder: Path):
    done = ended(run(folder, "--protected", "sex", "--refits", "2"))
    assert "of 200 people" in done.stdout
    assert "sex=Female" in done.stdout
    assert "Written: " in done.stderr
    written = sorted(path.name for path in (folder / "out").iterdir())
    assert written == ["junit.xml", "report.html", "report.json", "scores.parquet", "summary.json", "summary.md"]
    fields = json.loads((folder / "out/summary.json").read_text())
    assert done.stderr.count("Warning: ") == len(fields["warnings"])
    assert fields["settings"]["model_source"].endswith("model.py:score")
    assert fields["settings"]["command"].endswith("--protected sex --refits 2")
    assert fields["settings"]["table_sha256"] == sha256((folder / "people.csv").read_bytes()).hexdigest()
    assert fields["settings"]["model_sha256"] is None  # code, not a file
    assert "row.income" not in pq.read_schema(folder / "out/scores.parquet").names


@pytest.mark.parametrize(
    ("model", "options", "code", "word"),
    [
        ("alike", (), 0, "passes"),
        ("score", (), 1, "fails"),
        ("score", ("--max-flagged", "1"), 0, "passes"),
        ("alike", ("--sample", "50"), 3, "cannot tell"),  # 0.95 to the power of 50 is above 5 %
        ("alike", ("--sample", "50", "--cannot-tell", "pass"), 0, "cannot tell"),
        ("alike", ("--sample", "50", "--cannot-tell", "fail"), 1, "cannot tell"),
        ("alike", ("--cannot-tell", "fail"), 0, "passes"),
        ("score", ("--cannot-tell", "pass"), 1, "fails"),
        ("score", ("--refits", "1"), 3, None),  # no intervals, so that there is no verdict
    ],
)
def test_the_exit_code_follows_the_verdict(folder: Path, model: str, options: tuple[str, ...], code: int, word: str):
    refits = () if "--refits" in options else ("--refits", "2")
    done = run(folder, "-c", "sex", *refits, *options, model=f"model.py:{model}")
    assert done.exit_code == code, done.stderr
    verdict = json.loads((folder / "out/summary.json").read_text())["verdict"]
    assert (verdict and verdict["word"]) == word
    share = 100 if "--max-flagged" in options else 5
    rule = f"Exit code {code}: 0 passes, 1 fails, 3 cannot tell. The limit is {share} % of people over delta"
    assert done.stderr.splitlines()[-1].startswith(rule)


def test_people_of_a_sample_keep_their_row_numbers_and_rows(folder: Path):
    ended(run(folder, "-c", "sex", "--refits", "2", "--sample", "120", "--include-rows", "--delta", "0"))
    scores = pq.read_table(folder / "out/scores.parquet")
    income = load_table(folder / "people.csv")["income"].to_list()
    flagged = [row for row in scores.to_pylist() if row["flagged"]]
    assert len(scores) == 120
    assert flagged
    assert all(row["row.income"] == income[row["row_id"]] for row in flagged)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "Missing option '-c' / '--protected'"),
        (["-c", "sex", "--label", "job", "--label", "age"], "'--label': it was given 2 times"),
        (["-c", "sex", "--delta", "-0.1"], "'--delta'"),
        (["-c", "sex", "--delta", "nan"], "'--delta'"),
        (["-c", "sex", "--max-flagged", "1.5"], "'--max-flagged'"),
        (["-c", "sex", "--sample", "0"], "'--sample'"),
        (["-c", "sex", "--seed", "-1"], "'--seed'"),
        (["-c", "sex", "--refits", "0"], "'--refits'"),
        (["-c", "sex", "--output", "odds"], "'--output'"),
        (["-c", "sex", "--test", "ranck"], "Did you mean 'rank'?"),
        (["-c", "sex", "--settings", "epsilon"], "'epsilon' is not a setting; give name=value, such as epsilon=0.5."),
        (["-c", "sex", "--settings", "a=1", "--settings", "a=2"], "a was given twice; give it once."),
        (["-c", "sex", "--test", "transport", "--settings", "exact_up=5"], "Did you mean 'exact_up_to'?"),
        (["-c", "sex", "--test", "transport", "--settings", "exact_up_to=many"], "is 'many'; expected a"),
        (["-c", "sex", "--test", "counterfactual", "--graph", "nowhere.toml"], "nowhere.toml"),
        (["-c", "sex", "--test", "all", "--settings", "steps=5"], "as in fliptest.steps"),
        (["-c", "sex", "--test", "counterfactual", "--settings", "graph=5"], "give it with --graph FILE"),
        (["-c", "sex", "--test", "fliptest", "--settings", "weight=inf"], "expected a finite number"),
        (["-c", "sex", "--fdr", "nan"], "nan is not"),
    ],
)
def test_nonsense_options_are_refused_in_one_sentence(folder: Path, options: list[str], message: str):
    assert_refused(run(folder, *options), folder, message)


def test_a_file_in_the_place_of_the_folder_is_refused_before_the_audit(folder: Path):
    taken = ["audit", "m", "t", "-c", "sex", "--out", str(folder / "people.csv")]
    assert "'--out'" in refusal_of(CliRunner().invoke(cli, taken))


@pytest.mark.parametrize("streamed", [False, True], ids=["one file", "a folder"])
def test_a_sample_is_random_seeded_and_keeps_the_order_and_the_row_numbers(tmp_path: Path, streamed: bool):
    people = pa.Table.from_pandas(load_table(example_table()).to_pandas(), preserve_index=False)
    for name, part in (("a", people.slice(0, 70)), ("b", people.slice(70))):
        (tmp_path / "folder").mkdir(exist_ok=True)
        pq.write_table(part, tmp_path / f"folder/{name}.parquet", row_group_size=30)
    pq.write_table(people, tmp_path / "whole.parquet")
    table = tmp_path / ("folder" if streamed else "whole.parquet")
    part, rows = sampled(table, 10, seed=1)
    assert len(part) == len(set(rows.tolist())) == 10
    assert rows.tolist() == sorted(rows.tolist())
    assert part["income"].to_list() == [people["income"].to_pylist()[row] for row in rows]
    assert sampled(table, 10, seed=1)[1].tolist() == rows.tolist()
    assert sampled(table, 10, seed=2)[1].tolist() != rows.tolist()
    (tmp_path / "none").mkdir()
    pq.write_table(people.slice(0, 0), tmp_path / "none/a.parquet")
    with pytest.raises(FileError, match="have no rows of people"):
        sampled(tmp_path / "none", 10, seed=1)


def test_all_tests_are_compared_on_the_terminal_and_in_the_files(folder: Path):
    (folder / "graph.toml").write_text('[parents]\nincome = ["sex"]\n')
    done = ended(run(folder, "-c", "sex", "--refits", "2", "--test", "all", "--graph", str(folder / "graph.toml")))
    assert "Rank correlation with rank" in done.stdout
    fields = json.loads((folder / "out/summary.json").read_text())["comparison"]
    assert fields["agreement"]["rank"]["rank"] == 1
    assert fields["tests"]["counterfactual"]["seconds"] > 0
    names = pq.read_schema(folder / "out/scores.parquet").names
    assert {"test[rank]", "test[transport]", "test[counterfactual]"} < set(names)
    assert "Other fairness tests" in (folder / "out/report.html").read_text()
    printed = " ".join(done.stdout.split())
    assert "unfair_map was not run: " in printed
    assert "transport reports: mean cost of a pair" in printed


def test_certificates_are_proved_and_written(folder: Path):
    frame = load_table(folder / "people.csv").to_native().to_pandas()
    tree = DecisionTreeClassifier(max_depth=3, random_state=0).fit(frame[["income"]], frame["income"] > 3200)
    (folder / "tree.pkl").write_bytes(pickle.dumps(tree))
    done = ended(run(folder, "-c", "sex", "--refits", "1", "--trust-model", "--certify", model="tree.pkl"))
    fields = json.loads((folder / "out/summary.json").read_text())
    within, scores = fields["certificates"]["within_delta"], pq.read_table(folder / "out/scores.parquet")
    assert f"For {within} of 200 people no point on the path" in " ".join(done.stdout.split())
    # one step at 3200: who passes it changes by 1, everybody else by 0, and no point inside is worse
    assert scores["certificate"].to_pylist() == pytest.approx(scores["score"].to_pylist())
    assert within == 200 - fields["counts"]["flagged"]
    assert fields["certificates"]["worse_inside"] == 0


def test_certificates_of_a_model_behind_a_url_are_refused_before_any_call(folder: Path):
    table = str(folder / "people.csv")
    options = ["-c", "sex", "--certify", "--out", str(folder / "out")]
    done = CliRunner().invoke(cli, ["audit", "https://model.invalid/invocations", table, *options])
    assert_refused(done, folder, "omit --certify, or give the model's file")
