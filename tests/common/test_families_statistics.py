"""Statistics of blocks of rows add up to those of all rows."""

import pytest
import torch

from metaclust.mixture import FAMILIES, Statistics, component_family


def problem(rows=20, components=3, width=2):
    z = torch.randn(rows, width, dtype=torch.float64)
    return z, torch.randn(rows, components, dtype=torch.float64).softmax(-1)


def sums(family, z, r):
    return family.statistics(family.features(z), r)


def blockwise(family, z, r):
    first, *others = (sums(family, *block) for block in zip(z.split(7), r.split(7), strict=True))
    for other in others:
        first = first + other
    return first


def test_statistics_are_the_weighted_sums_of_the_rows(covariance):
    z, r = problem()
    statistics = sums(component_family(covariance), z, r)
    torch.testing.assert_close(statistics.count, torch.stack([r[:, k].sum() for k in range(3)]))
    torch.testing.assert_close(statistics.first, torch.stack([(r[:, k, None] * z).sum(0) for k in range(3)]))
    outer = torch.stack([sum(r[n, k] * torch.outer(z[n], z[n]) for n in range(len(z))) for k in range(3)])
    diagonal = outer.diagonal(dim1=-2, dim2=-1)
    second = (diagonal.sum(-1), diagonal, outer)[FAMILIES[covariance].precision_axes]
    torch.testing.assert_close(statistics.second, second)


def test_blocks_add_up_to_the_whole(covariance):
    family, (z, r) = component_family(covariance), problem()
    whole, parts = sums(family, z, r), blockwise(family, z, r)
    for name in ("count", "first", "second"):
        torch.testing.assert_close(getattr(parts, name), getattr(whole, name))


@pytest.mark.parametrize("mean_covariance", ["unit", "optimal"])
def test_the_updates_from_summed_blocks_equal_those_from_the_whole(covariance, mean_covariance):
    family, (z, r) = component_family(covariance, mean_covariance), problem()
    whole, parts = sums(family, z, r), blockwise(family, z, r)
    start = family.start(family.features(z), 3)
    for ours, theirs in (
        (family.update(parts, start), family.update(whole, start)),
        (family.maximize(parts), family.maximize(whole)),
    ):
        for name in ("theta", "a", "b"):
            torch.testing.assert_close(getattr(ours, name), getattr(theirs, name))


@pytest.mark.parametrize(("shape", "name"), [({"components": 4}, "count"), ({"width": 3}, "first")])
def test_statistics_of_different_shapes_do_not_add(covariance, shape, name):
    family = component_family(covariance)
    with pytest.raises(ValueError, match=f"cannot add statistics: {name} has shape"):
        sums(family, *problem()) + sums(family, *problem(**shape))


def test_statistics_of_different_families_do_not_add():
    z, r = problem()
    with pytest.raises(ValueError, match="cannot add statistics: second has shape"):
        sums(component_family("spherical"), z, r) + sums(component_family("full"), z, r)


@pytest.mark.usefixtures("_without_type_checks")
@pytest.mark.parametrize("other", [1.0, None, torch.zeros(3)], ids=["number", "None", "tensor"])
def test_only_statistics_add_to_statistics(other):
    statistics = sums(component_family("spherical"), *problem())
    assert isinstance(statistics, Statistics)
    with pytest.raises(TypeError):
        statistics + other
