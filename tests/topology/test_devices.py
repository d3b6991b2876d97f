"""Device tables follow the nodes of a changed fleet."""

from __future__ import annotations

from dataclasses import replace

from devices import make_devices

from topology.device_counts import count_by_class
from topology.devices import ExtendedResource, move_nodes


def test_devices_follow_their_nodes() -> None:
    table = make_devices([(0, "gpu", 4, 4), (1, "gpu", 8, 7), (2, "nic", 1, 1)])
    table = replace(table, extended=(ExtendedResource("example.com/gpu", 0, (0, 1)),))
    # The first node is gone, and a new one stands before the others.
    moved = move_nodes(table, [-1, 1, 2], 3)
    assert count_by_class(moved) == {1: {"gpu": (8, 7)}, 2: {"nic": (1, 1)}}
    assert moved.extended == (ExtendedResource("example.com/gpu", 0, (1,)),)
    assert moved.claims == table.claims


def test_what_every_node_reaches_new_ones_reach_too() -> None:
    table = replace(make_devices([(0, "nic", 1, 1)]), reaches=((0, 1),))
    assert move_nodes(table, [0, 1], 3).reaches == ((0, 1, 2),)
