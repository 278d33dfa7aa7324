"""Networks that hide a secret: what is left of it, what the floor decides, members that do not depend on each other."""

from dataclasses import replace

import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch.nn import functional as F

from fairfox.auxiliary.adversarial import HidingSettings, train_hiding
from fairfox.auxiliary.mlp import MLP
from fairfox.auxiliary.training import LearningTask, binary_loss

QUICK = HidingSettings(width=16, batch_size=64)
SHORT = replace(QUICK, epochs=2)


def rows(count, *, seed=0):
    """Return x, a task told by the first column and, for one part, by the second, and a secret told by the second."""
    generator = torch.Generator().manual_seed(seed)
    x, noise = (torch.randn(count, 4, generator=generator) for _ in range(2))
    secret = (x[:, 1] + 0.3 * noise[:, 0] > 0).float()
    task = (x[:, 0] + 0.7 * x[:, 1] + 0.5 * noise[:, 1] > 0).float()
    return x, task, secret


def hide(x, task, secret, *, settings=QUICK, **options):
    both = (LearningTask(task, binary_loss), LearningTask(secret, binary_loss))
    return train_hiding(x, *both, settings=settings, **options)


def outputs_of(net, x):
    with torch.no_grad():
        return net(x)[..., 0]


def parameters_of(net):
    return [parameter.detach() for parameter in net.parameters()]


def test_the_higher_the_floor_the_less_of_the_secret_is_left_while_the_task_can_be_told():
    slow = replace(QUICK, start=1.0, decay=0.5)  # so that the floor alone decides from the first epochs on
    net = hide(*rows(2000), floors=[None, 0.2, 10.0], seeds=[0, 0, 0], settings=slow)
    x, task, secret = rows(2000, seed=1)
    outputs = outputs_of(net, x)
    told = [roc_auc_score(secret, one) for one in outputs]
    assert told[0] > told[1] > told[2]
    assert told[0] > 0.7
    assert abs(told[2] - 0.5) < 0.08
    assert roc_auc_score(task, outputs[2]) > 0.75


def test_members_are_the_same_trained_together_or_alone():
    people, floors, seeds = rows(500), [None, 0.0, 3.0], [4, 5, 6]
    together = hide(*people, floors=floors, seeds=seeds, settings=SHORT)
    for place, (floor, seed) in enumerate(zip(floors, seeds, strict=True)):
        alone = hide(*people, floors=[floor], seeds=[seed], settings=SHORT)
        for one, many in zip(parameters_of(alone), parameters_of(together), strict=True):
            torch.testing.assert_close(one[0], many[place], rtol=1e-4, atol=1e-5)


def test_seeds_decide_everything_and_the_global_generator_stays_as_it_was():
    before = torch.get_rng_state()
    first, again, other = (hide(*rows(300), seeds=[seed], settings=SHORT) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(map(torch.equal, parameters_of(first), parameters_of(again)))
    assert not torch.equal(parameters_of(first)[0], parameters_of(other)[0])


def test_one_step_is_what_autograd_says():
    """One minibatch of all rows: the adversaries' steps, then one on the clipped gradient, Adam by torch."""
    x, task, secret = rows(40)
    s = HidingSettings(width=5, batch_size=40, epochs=1, start=7.0, clip=0.01)
    ours = hide(x, task, secret, floors=[0.5], seeds=[3], settings=s)

    net = MLP(4, width=5, depth=2, seed=3)
    adversary = MLP(5, width=5, depth=1, seed=4)
    body, head = net.member(0)[:-1], net.member(0)[-1]
    other = adversary.member(0)
    adam = torch.optim.Adam(other.parameters(), lr=1e-3)
    for _ in range(3):  # the order of the rows does not matter for a mean over all
        adam.zero_grad()
        F.binary_cross_entropy_with_logits(other(body(x).detach())[:, 0], secret).backward()
        adam.step()
    own = [*body.parameters(), *head.parameters()]
    adam = torch.optim.Adam(own, lr=1e-3)
    told, guessed = head(body(x))[:, 0], other(body(x))[:, 0]
    loss = F.binary_cross_entropy_with_logits(told, task) - 7.0 * F.binary_cross_entropy_with_logits(guessed, secret)
    (loss / 8.0).backward()
    torch.nn.utils.clip_grad_norm_(own, 0.01)
    adam.step()
    expected = [p.detach() for p in own]
    for layer in range(3):
        torch.testing.assert_close(ours.weights[layer].detach()[0].T, expected[2 * layer], rtol=1e-3, atol=1e-6)
        torch.testing.assert_close(ours.biases[layer].detach()[0, 0], expected[2 * layer + 1], rtol=1e-3, atol=1e-6)


@pytest.mark.gpu
def test_members_train_on_a_gpu_as_on_a_cpu():
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    nets = [hide(*(part.to(device) for part in rows(500)), settings=SHORT) for device in ("cpu", "cuda")]
    for one, other in zip(*map(parameters_of, nets), strict=True):
        torch.testing.assert_close(one, other.cpu(), rtol=1e-2, atol=1e-3)
