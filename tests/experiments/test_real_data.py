"""Tables, people, targets and generators that the experiments on real data share."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import binary_cross_entropy

from fairfox.data.adult import FILES as ADULT
from fairfox.data.catalog import find_file
from fairfox.data.dataset import Dataset
from fairfox.errors import FileError
from fairfox.maps.gan import GanMap
from fairfox.nets.adversarial import HidingSettings
from fairfox.nets.wgan import GanSettings
from fairfox.remedy import measure, train_networks
from fairfox.synthetic.targets import train_target

EXPERIMENT = "real_data"
SMALL = HidingSettings(width=8, depth=1, epochs=4, batch_size=32, decay=0.01)  # alpha reaches the floors
GAN = GanSettings(steps=4, width=8, depth=1, batch=16)
FLOORS = (None, 0.0, 3.0)


@pytest.fixture
def made(experiment, monkeypatch):
    """Two hundred people, every fourth of group 1, with a label that has nothing to do with them; x0 counts them."""
    x = torch.randn(200, 6, generator=torch.Generator().manual_seed(0))
    x[:, 0] = torch.arange(200) / 100 - 1
    y = (torch.rand(200, generator=torch.Generator().manual_seed(1)) < 0.5).float()
    data = Dataset.from_arrays(x, c=(torch.arange(200) % 4 == 0).float(), y=y)
    monkeypatch.setitem(experiment.TABLES, "made", lambda: data)
    return data


@pytest.fixture
def ground(experiment, made):
    return experiment.Ground("made", 0, 0)


@pytest.fixture
def trained(experiment, ground, tmp_path):
    """What training returned, and the folder of the targets."""
    job = experiment.targets_job(ground, FLOORS, SMALL)
    return job.function(tmp_path, (), *job.arguments), tmp_path


def counted(data):
    """Return who is in it, by what x0 counts."""
    return {round((one + 1) * 100) for one in data.x[:, 0].tolist()}


@pytest.mark.parametrize("rows", [None, 100, 10_000])
def test_people_have_every_groups_share_and_nobody_is_on_both_sides(experiment, made, rows):
    fitting, people = experiment.Ground("made", 0, 0, rows).people()
    size = 100 if rows == 100 else 200
    assert (len(fitting), len(people)) == (0.8 * size, 0.2 * size)
    assert (fitting.c.sum(), people.c.sum()) == (0.2 * size, 0.05 * size)
    assert len(counted(fitting) | counted(people)) == size


def test_the_same_ground_has_the_same_people_and_another_number_others(experiment, made):
    def judged(number, seed=0, rows=None):
        return counted(experiment.Ground("made", number, seed, rows).people()[1])

    assert judged(0) == judged(0)
    assert judged(0) != judged(1)
    assert judged(0) != judged(0, seed=1)
    assert judged(0, rows=100) != judged(1, rows=100)


def test_seeds_are_of_a_ground_and_a_purpose(experiment):
    grounds = [experiment.Ground(*of) for of in (("a", 0, 0), ("b", 0, 0), ("a", 1, 0), ("a", 0, 1))]
    seeds = [ground.seed_for(what) for ground in grounds for what in ("targets", "gan")]
    assert len(set(seeds)) == len(seeds)
    assert replace(grounds[0], rows=5).seed_for("gan") == grounds[0].seed_for("gan")


def test_a_small_sample_of_adult_keeps_the_shares_of_the_sexes(experiment):
    if any(find_file(file) is None for file in ADULT):
        pytest.skip("Adult is not on this machine; FAIRFOX_DATA names the folder with the real data sets")
    fitting, people = experiment.Ground("adult", 0, 0, rows=1_000).people()
    assert len(fitting) + len(people) == pytest.approx(1_000, abs=1)
    for part in (fitting, people):
        assert part.c.mean().item() == pytest.approx(30_527 / 45_222, abs=1 / len(part))  # men among all


def test_targets_that_hide_are_those_of_train_networks(experiment, ground, trained):
    fitting, people = ground.people()
    models = dict(zip(FLOORS, experiment.load_targets(trained[1], FLOORS), strict=True))
    seed = ground.seed_for("targets")
    for floor in (0.0, 3.0):  # each trained alone
        (net,) = train_networks(fitting, floors=[floor], seeds=[seed], settings=SMALL)
        torch.testing.assert_close(models[floor](people.x), net(people.x).sigmoid(), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(models[0.0](people.x), models[3.0](people.x), atol=1e-3)


def test_the_plain_target_is_stopped_by_people_it_does_not_learn_from(experiment, ground, trained):
    fitting, people = ground.people()
    (plain,) = experiment.load_targets(trained[1], [None])
    seed = ground.seed_for("targets")
    own = train_target(fitting, width=8, depth=1, seed=seed, training=experiment.PLAIN)
    torch.testing.assert_close(plain(people.x), own(people.x))
    # there is nothing to be learned here; a network that is not stopped learns its people by heart
    long = replace(SMALL, width=64, epochs=60, rate=0.01)
    (net,) = train_networks(fitting, floors=[None], seeds=[seed], settings=long)
    by_heart, stopped = (
        binary_cross_entropy(out[:, 0], people.y) for out in (net(people.x).sigmoid(), plain(people.x))
    )
    assert by_heart > stopped + 0.1


def test_what_targets_tell_is_measured_on_people_they_never_saw(experiment, ground, trained):
    _, people = ground.people()
    told, folder = trained
    assert [one["floor"] for one in told] == list(FLOORS)
    for one, model in zip(told, experiment.load_targets(folder, FLOORS), strict=True):
        own = measure(model(people.x)[:, 0], people)
        assert (one["rows"], one["accuracy"], one["auc"]) == (40, own.accuracy, own.auc)
        assert one["leaks"][0]["gap"] == own.leaks[0].gap


def test_targets_can_be_all_plain_or_none(experiment, ground, tmp_path):
    for floors in ((None,), (1.0,)):
        folder = tmp_path / experiment.floor_name(floors[0])
        folder.mkdir()
        told = experiment.train_targets(folder, (), ground, floors, SMALL, experiment.PLAIN)
        assert [one["floor"] for one in told] == list(floors)
        assert len(list(folder.glob("*.safetensors"))) == 1


def test_another_setting_is_another_job(experiment, made):
    ground = experiment.Ground("made", 0, 0)
    changed = [(ground, FLOORS, None), (ground, FLOORS[:2], SMALL), (replace(ground, rows=9), FLOORS, SMALL)]
    keys = {experiment.targets_job(*what).key for what in [(ground, FLOORS, SMALL), *changed]}
    assert len(keys) == 4
    assert experiment.gan_job(ground, GAN).key != experiment.gan_job(ground, replace(GAN, steps=5)).key
    assert [job.name for job in (experiment.targets_job(*changed[0]), experiment.gan_job(ground, GAN))] == [
        "targets-made-0",
        "gan-made-0",
    ]


def test_generators_map_people_as_they_did_before_they_were_saved(experiment, ground, tmp_path):
    fitting, people = ground.people()
    job = experiment.gan_job(ground, GAN)
    checks = job.function(tmp_path, (), *job.arguments)
    own = GanMap(steps=4, width=8, depth=1, batch=16, seed=ground.seed_for("gan")).fit(fitting)
    torch.testing.assert_close(experiment.load_gan(tmp_path).map(people).rows, own.map(people).rows)
    assert checks == pytest.approx(own.checks())
    assert checks


def test_a_check_of_generators_that_diverged_is_null(experiment, ground, tmp_path, monkeypatch):
    monkeypatch.setattr(GanMap, "checks", lambda self: {"a": float("nan"), "b": float("inf"), "c": 0.5})
    assert experiment.train_gan(tmp_path, (), ground, GAN) == {"a": None, "b": None, "c": 0.5}


def test_a_table_without_its_file_is_told_and_other_errors_are_not_hidden(experiment, made, monkeypatch, tmp_path):
    for place in ("FAIRFOX_DATA", "FAIRFOX_CACHE"):
        monkeypatch.setenv(place, str(tmp_path))
    assert experiment.lacking(("made", "chicago")) == {"chicago": "not run: file not available"}
    assert experiment.lacking(("made",)) == {}

    def broken():
        raise ValueError("a cell holds no number")

    monkeypatch.setitem(experiment.TABLES, "made", broken)
    with pytest.raises(ValueError, match="a cell holds no number"):
        experiment.lacking(("made",))


def test_every_table_has_a_title_and_every_floor_a_name(experiment):
    assert experiment.TABLES.keys() == experiment.TITLES.keys()
    assert [experiment.floor_name(floor) for floor in experiment.FLOORS] == ["plain", "0", "0.5", "1", "3", "10"]


def test_where_no_table_is_to_be_had_the_loaders_own_words_are_said(experiment):
    def no_file():
        raise FileError("FAIRFOX_DATA names 'nowhere', which is no folder")

    loaders = {"adult": no_file, "bank": lambda: None}
    assert experiment.lacking(["adult", "bank"], loaders) == {"adult": "not run: file not available"}
    with pytest.raises(SystemExit, match="names 'nowhere', which is no folder"):
        experiment.lacking(["adult"], loaders)
