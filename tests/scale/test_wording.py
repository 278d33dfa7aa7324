import torch

from fairfox.data.contrasts import moves
from fairfox.data.dataset import Dataset, Protected
from fairfox.fairtests.protocol import combine
from fairfox.findings import contrast_words, effects_of
from fairfox.scale.wording import towards_of


def measured(protected: Protected, own: list[float], values: list[list[float]], *, signed: bool = True):
    """One re-fit of people whose own class or number is given, with a value for each contrast (N, Q)."""
    c = torch.tensor(own)[:, None]
    data = Dataset(x=torch.zeros(len(own), 1), c=c, protected=(protected,), features=())
    contrasts = moves((protected,)) if signed else ()
    return combine(torch.tensor([values]), data, contrasts=contrasts, signed=signed), c[:, 0]


def test_two_groups_go_to_each_other():
    sex = Protected("sex", levels=("f", "m"))
    found, own = measured(sex, [0.0, 1.0], [[0.25], [-0.5]])
    words = contrast_words(found, sex, 1.0)
    assert words == ("f", "m")
    said, places = towards_of(found, sex, own, words)
    assert [said[k] for k in places] == ["m", "f"]
    nan = float("nan")
    torch.testing.assert_close(effects_of(found, sex, own), torch.tensor([[nan, 0.25], [-0.5, nan]]), equal_nan=True)


def test_of_many_classes_the_largest_counts_and_the_own_one_is_gone_away_from():
    race = Protected("race", "categorical", ("a", "b", "c"))
    found, own = measured(race, [0.0, 2.0], [[0.1, 0.2, -0.3], [0.1, 0.2, 0.9]])
    said, places = towards_of(found, race, own, contrast_words(found, race, 1.0))
    assert [said[k] for k in places] == ["c", "away from c"]


def test_numbers_go_up_and_down_by_a_standard_deviation():
    age = Protected("age", "continuous", ())
    found, own = measured(age, [20.0, 30.0], [[0.5, 0.1], [0.1, 0.5]])
    words = contrast_words(found, age, 13.61)
    assert words == ("age + 13.6", "age - 13.6")
    said, places = towards_of(found, age, own, words)
    assert [said[k] for k in places] == ["age + 13.6", "age - 13.6"]


def test_a_test_that_knows_no_groups_has_no_words():
    sex = Protected("sex", levels=("f", "m"))
    found, own = measured(sex, [0.0, 1.0], [[0.25], [0.5]], signed=False)
    assert contrast_words(found, sex, 1.0) == ()
    assert effects_of(found, sex, own).shape == (2, 0)
    assert towards_of(found, sex, own, ())[0] == ()
