"""What a reader must know: warnings that need no audit to be worked out."""

import math

import torch

from fairfox.doubts import about_distance


def test_people_who_look_like_nobody_real_are_counted():
    distance = torch.tensor([1.0, 3.0, 3.1, math.inf, math.nan])
    assert about_distance(distance) == [
        "The counterfactual of 2 of 4 people looks like nobody real: it is more than 3 times as far from real people "
        "as these are from each other; read these scores with care."
    ]


def test_nothing_is_said_where_all_are_near():
    assert about_distance(torch.tensor([1.0, 3.0, math.nan])) == []
