"""What is known along a way, put together from points."""

from __future__ import annotations

import torch

from fairfox.certificates.protocol import join, point_at, settle, spread_out


def test_the_worst_point_counts_and_of_equals_the_first():
    way = settle(
        torch.tensor([0.5, 0.5, 0.5]),
        torch.tensor([0.6, 0.5, 0.1]),
        torch.tensor([0.2, 0.8, 0.7, 0.5, 0.6]),
        owner=torch.tensor([0, 0, 0, 1, 2]),
        t=torch.tensor([0.75, 0.25, 0.5, 0.5, 0.5]),
    )
    # person 0: 0.3 at 1/4 (and a little less than -0.3 at 3/4, in float32); 1 stays; 2 is worst at the end
    torch.testing.assert_close(way.largest, torch.tensor([0.3, 0.0, 0.4]))
    torch.testing.assert_close(way.signed, torch.tensor([0.3, 0.0, -0.4]))
    torch.testing.assert_close(way.at, torch.tensor([0.25, 0.0, 1.0]))
    torch.testing.assert_close(way.end, torch.tensor([0.1, 0.0, -0.4]))
    assert way.worse_inside().tolist() == [True, False, False]
    assert not bool(way.worse_inside(0.25).any())


def test_people_without_a_certificate_have_a_reason_and_no_numbers():
    found = settle(torch.zeros(1), torch.ones(1), torch.zeros(0), torch.zeros(0).long(), torch.zeros(0))
    way = spread_out(found, torch.tensor([1]), ["why", None, "why not"])
    assert way.certified.tolist() == [False, True, False]
    assert way.reasons == ("why", None, "why not")
    assert way.largest[1] == way.end[1] == 1
    both = join([way, found])
    assert both.certified.tolist() == [False, True, False, True]
    assert both.reasons == ("why", None, "why not", None)
    assert not bool(both.worse_inside().any())


def test_points_lie_on_the_straight_line():
    found = point_at(torch.tensor([[0.0, 2.0]]), torch.tensor([[4.0, 2.0]]), torch.tensor([0.25]))
    assert found.tolist() == [[1.0, 2.0]]
