"""The OpenDP backend's traps, and what is and what is not a backend (its law is tested in tests/statistical)."""

import ast
import math
import random
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import numpy as np
import opendp.prelude as dp
import pytest
from packaging.requirements import Requirement

import od_assets
import od_core
from od_core import NoiseSource, OdError
from od_core.noise import opendp
from od_core.noise import opendp as opendp_noise
from od_core.noise.backends import find_backend_name, resolve_noise_source
from od_core.noise.opendp import MAX_VARIANCE, SCALE_SLACK, VARIANCE_SLACK, WRONG_VERSIONS, OpenDPNoise, draw_noise
from od_core.noise.opendp_worker import GAUSSIAN, OpenDP, find_smallest_scale
from tests.od_core.doubles import SeededNoise

dp.enable_features("contrib")  # OpenDP asks that users of unvetted parts say so


@dataclass
class Asked:
    """What was asked of the processes that draw, and the scale that they would have drawn with."""

    losses: list[float] = field(default_factory=list)
    scales: list[float] = field(default_factory=list)


@pytest.fixture
def asked(monkeypatch) -> Asked:
    """OpenDP's own map holds the scale to the loss, as in the processes that draw, but nothing is drawn."""
    record, library = Asked(), OpenDP(opendp.locate_library())

    def recorded(law, scale, largest_loss, size):
        record.losses.append(largest_loss)
        record.scales.append(find_smallest_scale(library, law, scale, largest_loss)[0])
        return record.scales[-1], np.zeros(size, dtype=np.int64)

    monkeypatch.setattr(opendp_noise, "draw_noise", recorded)
    return record


def gaussian(scale: float) -> dp.Measurement:
    return dp.m.make_gaussian(dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float), scale=scale)


def some_variances(count: int) -> list[Fraction]:
    """Fractions of many sizes, perfect squares and their neighbours among them."""
    rng = random.Random("variances")  # noqa: S311
    some = [Fraction(1, 4), Fraction(1), Fraction(12345, 100), Fraction(10**4), Fraction(1, 3), Fraction(MAX_VARIANCE)]
    while len(some) < count:
        size = Fraction(10) ** rng.randint(-6, 12)
        some.append(Fraction(rng.randint(1, 10**18), rng.randint(1, 10**18)) * size)
        root = Fraction(rng.random())
        some += [root**2, root**2 + Fraction(1, 2**200), root**2 - Fraction(1, 2**200)]
    return [variance for variance in some if 0 < variance <= MAX_VARIANCE]


@pytest.mark.parametrize("version", WRONG_VERSIONS)
def test_versions_that_draw_wrong_noise_are_neither_installed_nor_used(monkeypatch, version):
    """Both were rejected by tests/statistical/test_noise_law.py, at variance 2469/20 with a p-value below 1e-16."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [allowed] = [one for one in map(Requirement, project["dependencies"]) if one.name == "opendp"]
    assert not allowed.specifier.contains(version)
    monkeypatch.setattr(opendp, "version", lambda _: version)
    with pytest.raises(OdError, match="OD-NOISE-VERSION"):
        resolve_noise_source("opendp")
    resolve_noise_source("table")


def test_the_scale_is_never_below_plan_and_opendp_agrees_exactly(asked):
    """sigma^2 <= scale^2 <= (1 + 2^-30) sigma^2 and map <= 1 / (2 sigma^2), as fractions.

    The map is that of OpenDP's Python package, not the one through the C interface that the scale was held to.
    """
    variances = some_variances(2000)
    assert any(Fraction(math.sqrt(variance)) ** 2 < variance for variance in variances)
    for variance in variances:
        OpenDPNoise().draw(variance, 1, 0, 0)
        used = asked.scales[-1]
        assert variance <= Fraction(used) ** 2 <= variance * (1 + VARIANCE_SLACK)
        assert Fraction(gaussian(used).map(1.0)) <= 1 / (2 * variance)


def test_the_scale_of_laplace_noise_is_never_below_plan_and_opendp_agrees_exactly(asked):
    """scale <= used <= (1 + 2^-30) scale, and map <= 1 / scale, which is the charge, as fractions."""
    scales = [scale for scale in some_variances(1000) if Fraction(1, 10**9) < scale < 10**12]
    assert any(Fraction(float(scale)) < scale for scale in scales)
    domain, distance = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    for scale in scales:
        OpenDPNoise().draw_laplace(scale, 0)
        used = asked.scales[-1]
        assert scale <= Fraction(used) <= scale * (1 + SCALE_SLACK)
        assert Fraction(dp.m.make_laplace(domain, distance, scale=used).map(1)) <= 1 / scale


@pytest.mark.parametrize("variance", [Fraction(0), Fraction(-1), Fraction(MAX_VARIANCE) + Fraction(1, 3)])
def test_no_noise_and_boundless_noise_are_refused_before_opendp_is_asked(variance, asked):
    with pytest.raises(OdError, match="OD-NOISE-MAP") as error:
        OpenDPNoise().draw(variance, 1, 0, 3)
    assert asked.scales == []
    assert error.value.spent == "the level stays charged"


@pytest.mark.parametrize("digits", [20, 60, 150, 300, 330, 400])
def test_a_tiny_variance_is_refused_or_costs_what_was_planned(digits, asked):
    """OpenDP takes a scale of 0 without a word and adds nothing: such a scale must never be drawn from."""
    variance = Fraction(1, 10**digits)
    try:
        OpenDPNoise().draw(variance, 1, 0, 3)
    except OdError:
        return
    assert asked.scales[-1] > 0
    assert Fraction(gaussian(asked.scales[-1]).map(1.0)) <= 1 / (2 * variance)


@pytest.mark.parametrize("factor", ["0", "0.99999999999", "1.000000001", "nan"])
def test_a_scale_outside_the_interval_of_the_accounting_is_refused(factor, monkeypatch):
    """The processes report the scale that they have drawn with; whatever they say is held to the plan."""
    used = []
    monkeypatch.setattr(opendp_noise, "draw_noise", lambda *_: (used[-1], np.zeros(5, dtype=np.int64)))
    source = OpenDPNoise()
    for draw in (lambda: source.draw(Fraction(9), 1, 0, 5), lambda: source.draw_laplace(Fraction(3), 5)):
        used.append(3.0)
        assert draw().tolist() == [0] * 5
        used.append(3 * float(factor))
        with pytest.raises(OdError, match="OD-NOISE-MAP"):
            draw()


def test_a_loss_below_every_scale_s_is_refused_and_nothing_is_drawn():
    """By a real process: the loss of scale 10 is 0.005, and a largest one of half of it is kept by no scale nearby."""
    used, _ = draw_noise(GAUSSIAN, 10.0, 0.0025, 3)
    assert math.isnan(used)
    used, _ = draw_noise(GAUSSIAN, 10.0, 0.005, 3)
    assert used == 10.0
    used, _ = draw_noise(GAUSSIAN, 0.0, 1e300, 3)
    assert math.isnan(used)


def test_this_process_never_loads_opendp():
    """So it can never draw by a generator that a clone of it would copy."""
    code = (
        "import sys; from pathlib import Path; from fractions import Fraction; "
        "from od_core.noise.backends import resolve_noise_source; "
        "drawn = resolve_noise_source('opendp').draw(Fraction(9), 1, 0, 5); "
        "sys.exit('opendp' in sys.modules or 'opendp' in Path('/proc/self/maps').read_text() or len(drawn) != 5)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_large_variances_do_not_saturate():
    """OpenDP saturates at the 64-bit limits in silence; 10 sigma of the largest variance are far from them."""
    drawn = OpenDPNoise().draw(Fraction(MAX_VARIANCE), 1, 0, 200)
    assert 10 * math.isqrt(MAX_VARIANCE) < 2**54
    assert np.abs(drawn).max() < 2**54


def test_a_double_and_a_changed_backend_are_no_backends():
    class Quieter(OpenDPNoise):
        def draw(self, variance, level, first, size):
            return super().draw(variance / 4, level, first, size)

    double = SeededNoise(1)
    assert isinstance(double, NoiseSource)
    assert resolve_noise_source(double) is double
    assert find_backend_name(double) is None
    assert find_backend_name(Quieter()) is None


REPEATABLE = {"simulate_draws", "RepeatableNoise"}
"""Names of what makes noise from given numbers."""


def test_only_evaluations_and_dry_runs_name_noise_that_can_be_repeated() -> None:
    """No release imports it."""
    roots = [Path(package.__file__ or "").parent for package in (od_core, od_assets)]
    found = set()
    for path in (path for root in roots for path in root.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
        if names & REPEATABLE:
            found.add(path.stem if path.parent.name == "od_assets" else path.parent.name)
    assert found == {"evaluation", "testing"}
