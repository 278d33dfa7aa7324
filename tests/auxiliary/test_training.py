"""Members trained together equal members trained alone; the best weights come back."""

import pytest
import torch
from torch import nn

from fairfox.auxiliary.mlp import MLP
from fairfox.auxiliary.training import binary_loss, train

MEMBERS, ROWS, BATCH = 3, 70, 16  # the last minibatch has 6 rows


def problem():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS + 30, 4, generator=generator).double()
    y = (x[:, 0] + 0.5 * torch.randn(len(x), generator=generator).double() > 0).double()
    return x[:ROWS], y[:ROWS], x[ROWS:], y[ROWS:]


def network(members=MEMBERS):
    return MLP(4, width=8, depth=2, members=members, seed=2).double()


def minibatches(seed):
    """Yield, epoch after epoch, each member's index batches as the loop draws them."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        orders = [torch.randperm(ROWS, generator=generator) for _ in range(MEMBERS)]
        yield [order.split(BATCH) for order in orders]


def train_alone(net, member, *, epochs, patience, seed, rate):
    """Return a plain network trained by a plain loop, its best validation loss, its best epoch."""
    x, y, valid_x, valid_y = problem()
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    log_loss = nn.BCEWithLogitsLoss()
    best, best_epoch, kept = torch.inf, 0, {}
    for epoch, orders in zip(range(1, epochs + 1), minibatches(seed), strict=False):
        for rows in orders[member]:
            optimizer.zero_grad()
            log_loss(net(x[rows])[:, 0], y[rows]).backward()
            optimizer.step()
        with torch.no_grad():
            current = float(log_loss(net(valid_x)[:, 0], valid_y))
        if current < best:
            best, best_epoch = current, epoch
            kept = {name: value.clone() for name, value in net.state_dict().items()}
        elif epoch - best_epoch >= patience:
            break
    net.load_state_dict(kept)
    return net, best, best_epoch


def fit(net, *, loss=binary_loss, **options):
    """Train the members of a network; return their validation losses after each epoch (E, M)."""
    x, y, valid_x, valid_y = problem()
    losses = []

    def watched(outputs, targets):
        found = loss(outputs, targets)
        if outputs.shape[1] == len(valid_x):
            losses.append(found)
        return found

    given = {"batch_size": BATCH, "rate": 1e-2, "patience": 3, "seed": 5} | options
    train(net, x, y, loss=watched, valid_x=valid_x, valid_targets=valid_y, **given)
    return torch.stack(losses)


@pytest.mark.parametrize(("epochs", "patience", "rate"), [(2, 3, 1e-2), (60, 3, 1e-2), (60, 1, 3e-2)])
def test_members_trained_together_equal_each_trained_alone(epochs, patience, rate):
    net = network()
    alone = [net.member(m) for m in range(MEMBERS)]
    losses = fit(net, max_epochs=epochs, patience=patience, rate=rate)
    _, _, valid_x, valid_y = problem()
    kept = binary_loss(net(valid_x), valid_y.expand(MEMBERS, -1)).detach()  # by the weights that came back
    best_epoch = 1 + (losses - kept).abs().argmin(0)
    for m, one in enumerate(alone):
        expected, loss, epoch = train_alone(one.train(), m, epochs=epochs, patience=patience, seed=5, rate=rate)
        torch.testing.assert_close(net(valid_x)[m], expected(valid_x), atol=1e-8, rtol=1e-6)
        assert kept[m].item() == pytest.approx(loss, abs=1e-9)
        assert best_epoch[m] == epoch
    if epochs == 60:  # they stopped early, and not all together: one waited for another without learning on
        assert len(set(best_epoch.tolist())) > 1
        assert len(losses) == int(best_epoch.max()) + patience


def test_networks_train_on_one_thread_and_leave_the_number_of_threads_as_it_was():
    before, inside = torch.get_num_threads(), []

    def loss(outputs, targets):
        inside.append(torch.get_num_threads())
        return binary_loss(outputs, targets)

    torch.set_num_threads(2)
    try:
        fit(network(), loss=loss, max_epochs=1)
        assert set(inside) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_network_that_never_improves_keeps_its_first_weights():
    net = network(1)
    before = [p.detach().clone() for p in net.parameters()]
    losses = fit(net, loss=lambda out, targets: binary_loss(out, targets) * torch.nan, patience=2)
    assert len(losses) == 2
    for now, then in zip(net.parameters(), before, strict=True):
        assert torch.equal(now, then)


def test_training_works_where_gradients_are_switched_off():
    net, expected = network(), network()
    fit(expected, max_epochs=1)
    with torch.no_grad():
        fit(net, max_epochs=1)
    assert torch.equal(net.weights[0], expected.weights[0])
