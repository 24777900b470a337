"""How a capture declares the device meshes of a job, seen from one rank or another."""

import types
import unittest
from unittest import mock

import torch

from stepgraph_capture import compat, world
from stepgraph_capture.meshes import Meshes


def mesh(ranks, *axes):
    ranks = torch.tensor(ranks)
    return types.SimpleNamespace(mesh=ranks, shape=tuple(ranks.shape), ndim=ranks.ndim, mesh_dim_names=axes or None)


class Declared(unittest.TestCase):
    def declared(self, *of_ranks, size=8):
        """By the first of these ranks, each with the meshes of its tensors; and what it calls the axes of its own."""
        found, root = [], mock.patch.object(compat, "root_mesh", lambda found: found)
        with root, mock.patch.object(world, "size", lambda: size):
            for meshes in of_ranks:
                with mock.patch.object(world, "of_each_rank", lambda mine: found.append(mine) or [mine]):
                    Meshes(meshes)
            with mock.patch.object(world, "of_each_rank", lambda mine: found):
                made = Meshes(of_ranks[0])
            return made.declared(), [made.axes(own) for own in of_ranks[0]]

    def lines(self, *of_ranks, **size):
        declared, axes = self.declared(*of_ranks, **size)
        entries = ([declared["mesh"]] if "mesh" in declared else []) + declared.get("meshes", [])
        return [" ".join(f"{a} {n}" for a, n in zip(entry["axes"], entry["shape"])) for entry in entries], axes

    def test_parts_of_a_mesh_are_in_it(self):
        whole = mesh([[0, 1, 2, 3], [4, 5, 6, 7]], "dp", "tp")
        found = self.lines([mesh([1, 5], "dp"), mesh([0, 1, 2, 3], "tp"), whole])
        self.assertEqual(found, (["dp 2 tp 4"], [["dp"], ["tp"], ["dp", "tp"]]))

    def test_flattened_axes(self):
        whole, flat = mesh([[[0, 1], [2, 3]], [[4, 5], [6, 7]]], "pp", "dp", "cp"), mesh([4, 5, 6, 7], "dp_cp")
        self.assertEqual(self.lines([whole, flat])[0], ["pp 2 dp 2 cp 2", "pp 2 dp_cp 4"])
        self.assertEqual(self.lines([mesh(list(range(8)), "all"), whole])[0], ["pp 2 dp 2 cp 2", "all 8"])
        self.assertEqual(self.lines([flat])[0], ["dp_cp-beside 2 dp_cp 4"])

    def test_equal_names_of_other_ranks(self):
        one, two = mesh(list(range(8)), "dp"), mesh([[0, 1, 2, 3], [4, 5, 6, 7]], "dp", "ep")
        self.assertEqual(self.lines([one, two]), (["dp 2 ep 4", "dp-1 8"], [["dp-1"], ["dp", "ep"]]))
        nameless = mesh(list(range(8))), mesh([[0, 1, 2, 3], [4, 5, 6, 7]])
        self.assertEqual(self.lines(nameless)[1], [["axis0-1"], ["axis0", "axis1"]])

    def test_another_order_of_ranks(self):
        self.assertEqual(self.lines([mesh([[0, 2], [1, 3]], "x", "y")], size=4)[0], ["y 2 x 2"])

    def test_axes_of_one_rank(self):
        whole = mesh([[[0], [1]], [[2], [3]]], "tp", "dp", "cp")
        found = self.lines([whole, mesh([2, 3], "dp_cp"), mesh([2], "cp")], size=4)
        self.assertEqual(found[0], ["tp 2 dp 2 cp 1", "tp 2 dp_cp 2"])

    def test_halves(self):
        """Each rank sees the mesh that it is in, and all declare the same."""
        first, second = mesh([0, 1, 2, 3]), mesh([4, 5, 6, 7])
        for ranks in ([first], [second]), ([second], [first]):
            self.assertEqual(self.lines(*ranks), (["axis0-beside 2 axis0 4"], [["axis0"]]))

    def test_ranks_without_a_rule(self):
        self.assertEqual(self.lines([mesh([0, 1, 4, 5], "dp_tp")]), ([], [["dp_tp"]]))

    def test_a_mesh_of_other_ranks_alone(self):
        experts = mesh([[0, 1, 2, 3], [4, 5, 6, 7]], "dp", "ep")
        self.assertEqual(self.lines([mesh(list(range(8)), "all")], [experts])[0], ["dp 2 ep 4", "all 8"])
