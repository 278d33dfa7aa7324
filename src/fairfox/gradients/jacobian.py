"""jacobian(model, x): autograd where it sees through the model, an estimate elsewhere."""

from torch import Tensor

from fairfox.gradients.autograd import autograd_jacobian
from fairfox.gradients.finite_difference import directional_derivative, finite_difference_jacobian
from fairfox.models.protocol import Model


def jacobian(model: Model, x: Tensor, *, batch_size: int = 4096, step: float | None = None) -> Tensor:
    """Return the derivative of every output by every column of x (N, K, D); `step` is that of black boxes."""
    if model.differentiable:
        return autograd_jacobian(model, x, batch_size=batch_size)
    return finite_difference_jacobian(model, x, step=step)


def slope(model: Model, x: Tensor, direction: Tensor, *, batch_size: int = 4096, step: float | None = None) -> Tensor:
    """Return the derivative of the prediction along a direction (N, D) -> (N,).

    Black boxes on continuous columns need two predictions for it; with categories the whole Jacobian is
    estimated, since a one-hot column cannot be walked both ways.
    """
    if model.differentiable or len(getattr(model, "blocks", ())) > 0:
        return (jacobian(model, x, batch_size=batch_size, step=step)[:, 0] * direction).sum(1)
    return directional_derivative(model, x, direction, step=step)
