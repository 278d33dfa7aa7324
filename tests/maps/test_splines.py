"""Natural splines against SciPy."""

import numpy as np
import torch
from scipy.interpolate import CubicSpline

from fairfox.maps.splines import natural_spline


def test_a_spline_is_the_natural_spline_through_its_knots():
    knots = torch.tensor([-2.0, -0.5, 0.3, 1.0, 2.5]).double()
    values = torch.tensor([1.0, -1.0, 0.5, 2.0, 0.0]).double()
    weights = torch.linalg.solve(natural_spline(knots, knots), values)
    inside = torch.linspace(-2, 2.5, 50).double()
    expected = CubicSpline(knots, values, bc_type="natural")(inside)
    np.testing.assert_allclose(natural_spline(inside, knots) @ weights, expected, atol=1e-10)
    beyond = natural_spline(torch.tensor([3.0, 4.0, 5.0]).double(), knots) @ weights
    torch.testing.assert_close(beyond[2] - beyond[1], beyond[1] - beyond[0])  # a straight line
