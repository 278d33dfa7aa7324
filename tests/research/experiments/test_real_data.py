"""Tables, people, targets and generators that the experiments on real data share."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import binary_cross_entropy

from fairfox.auxiliary.adversarial import HidingSettings, train_networks
from fairfox.benchmark.truth import train_target
from fairfox.data.dataset import Dataset
from fairfox.maps.gan import GanMap, GanSettings

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
    own = train_target(fitting, width=8, depth=1, seed=seed)
    torch.testing.assert_close(plain(people.x), own(people.x))
    # there is nothing to be learned here; a network that is not stopped learns its people by heart
    long = replace(SMALL, width=64, epochs=60, rate=0.01)
    (net,) = train_networks(fitting, floors=[None], seeds=[seed], settings=long)
    by_heart, stopped = (
        binary_cross_entropy(out[:, 0], people.y) for out in (net(people.x).sigmoid(), plain(people.x))
    )
    assert by_heart > stopped + 0.1


def test_generators_map_people_as_they_did_before_they_were_saved(experiment, ground, tmp_path):
    fitting, people = ground.people()
    job = experiment.gan_job(ground, GAN)
    checks = job.function(tmp_path, (), *job.arguments)
    own = GanMap(steps=4, width=8, depth=1, batch=16, seed=ground.seed_for("gan")).fit(fitting)
    torch.testing.assert_close(experiment.load_gan(tmp_path).map(people).rows, own.map(people).rows)
    assert checks == pytest.approx(own.checks())
    assert checks


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
