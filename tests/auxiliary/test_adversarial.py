"""The auxiliary that hides the label: what it is for, what it costs, and that it is off unless asked for."""

import pytest
import torch
from sklearn.metrics import roc_auc_score

from fairfox.auxiliary.model import AuxiliaryModel
from fairfox.auxiliary.training import label_task, protected_task
from fairfox.data.dataset import Dataset, Protected
from fairfox.errors import DataError
from fairfox.fairtests.faux import FAux
from fairfox.models.torch import TorchModel


def biased_people(count=1000, *, seed=0):
    """Return people whose first column differs between the groups; it decides over the label beside the second."""
    generator = torch.Generator().manual_seed(seed)
    c = (torch.rand(count, generator=generator) < 0.5).float()
    x = torch.randn(count, 3, generator=generator)
    x[:, 0] += 1.5 * c
    noise = 0.5 * torch.randn(count, generator=generator)
    return Dataset.from_arrays(x, c, (x[:, 0] - 0.75 + x[:, 1] + noise > 0).float())


def test_hiding_a_biased_label_hides_the_group_and_with_it_the_unfairness():
    data, people = biased_people(), biased_people(seed=1)
    unfair = TorchModel(lambda x: torch.sigmoid(x[:, :1] + x[:, 1:2]))  # uses what differs between the groups
    told, scores = {}, {}
    for adversarial in (False, True):
        auxiliary = AuxiliaryModel(refits=2, adversarial=adversarial).fit(data)
        outputs = torch.stack([member(people.x) for member in auxiliary.members]).detach().mean(0)[:, 0]
        told[adversarial] = (roc_auc_score(people.c, outputs), roc_auc_score(people.y, outputs))
        scores[adversarial] = FAux(auxiliary=auxiliary, normalise=True).score(unfair, people)
    assert told[False][0] > 0.8
    assert told[True][0] < told[False][0] - 0.05
    assert abs(told[True][1] - 0.5) < told[False][1] - 0.5
    # the target is the same, and the gradients of a good auxiliary are 45 degrees from its own: the mean is near 0.7
    assert float(scores[False].mean()) > 0.5
    assert float((scores[True] < scores[False]).float().mean()) > 0.9


def test_without_labels_there_is_nothing_to_hide():
    people = biased_people(100)
    unlabelled = Dataset.from_arrays(people.x, people.c)
    with pytest.raises(DataError, match="no labels y"):
        AuxiliaryModel(adversarial=True).fit(unlabelled)
    assert len(AuxiliaryModel(refits=1, max_epochs=1).fit(unlabelled).members) == 1


def test_a_label_of_many_values_is_hidden_as_a_standardised_number():
    data = Dataset.from_arrays(torch.zeros(3, 1), c=[0.0, 1.0, 0.0], y=[10.0, 20.0, 30.0])
    task = label_task(data)
    # mean 20, standard deviation sqrt(200 / 3) = 8.165
    torch.testing.assert_close(task.targets[:, 0], torch.tensor([-1.2247, 0.0, 1.2247]), rtol=1e-4, atol=1e-4)
    # squared error of outputs 0: (1.5 + 0 + 1.5) / 3 = 1
    torch.testing.assert_close(task.loss(torch.zeros(1, 3, 1), task.targets[None]), torch.ones(1), rtol=1e-4, atol=0)


def test_people_whose_label_is_unknown_do_not_count():
    data = Dataset.from_arrays(torch.zeros(3, 1), c=[0.0, 1.0, 0.0], y=[1.0, float("nan"), 1.0])
    task = label_task(data)
    outputs = torch.tensor([[[0.0], [50.0], [0.0]]])
    torch.testing.assert_close(task.loss(outputs, task.targets[None]), torch.tensor([0.6931]), rtol=1e-4, atol=0)


def test_heads_of_all_protected_variables_are_summed():
    protected = [Protected("sex"), Protected("race", "categorical", ("a", "b", "c"))]
    data = Dataset.from_arrays(torch.zeros(2, 1), c=[[0.0, 2.0], [1.0, 1.0]], protected=protected)
    task = protected_task(data)
    assert task.outputs == 4
    # log 2 + log 3 = 1.791759
    torch.testing.assert_close(task.loss(torch.zeros(1, 2, 4), task.targets[None]), torch.tensor([1.791759]))
