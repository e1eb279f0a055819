"""The table backend: its boundaries, every way a word is decided, its key stream and its refusals.

Its law is tested in tests/statistical.
"""

import os
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import cache

import flint
import numpy as np
import pytest

from od_core import OdError
from od_core.noise import table_sampler as certified_law
from od_core.noise import table_sampler as table_noise
from od_core.noise.table_sampler import (
    MAX_TABLE_VARIANCE,
    DiscreteGaussian,
    DiscreteLaplace,
    Keystream,
    SymmetricDistribution,
    TableNoise,
    _compute_limbs,
    _Table,
    compute_tail_floors,
    find_quantile,
)
from tests.od_core.oracles.boundaries import Inversion, floors, gaussian_tails, laplace_tails
from tests.od_core.words import ExhaustedError, ListedArrays, ListedWords, NarrowWords, RecordedWords

SMALL = [DiscreteGaussian(Fraction(1, 16)), DiscreteGaussian(Fraction(1, 4)), DiscreteGaussian(Fraction(1))]
SMALL += [DiscreteLaplace(Fraction(1, 3)), DiscreteLaplace(Fraction(2))]
LAWS = [
    *SMALL,
    DiscreteGaussian(Fraction(12345, 100)),
    DiscreteGaussian(Fraction(10**4)),
    DiscreteGaussian(Fraction(10**6)),
    DiscreteLaplace(Fraction(2001, 100)),
    DiscreteLaplace(Fraction(100)),
]
WIDEST = DiscreteGaussian(Fraction(MAX_TABLE_VARIANCE))


@cache
def inversion(law: SymmetricDistribution) -> Inversion:
    gaussian = isinstance(law, DiscreteGaussian)
    return Inversion(gaussian_tails(law.variance) if gaussian else laplace_tails(law.scale))


@cache
def table(law: SymmetricDistribution, first_bits: int = 16, further_bits: int = 64) -> _Table:
    return _Table(law, first_bits, further_bits)


def drawn_from(law: SymmetricDistribution, first_bits: int, further_bits: int, word: int, bits: int) -> int | None:
    """What the table makes of one U, None if its bits do not suffice."""
    try:
        return int(table(law, first_bits, further_bits).draw(ListedWords(word, bits), 1)[0])
    except ExhaustedError:
        return None


@pytest.mark.representatives("*Fraction(1, 4)*", "*Fraction(2, 1)*", "*Fraction(2469, 20)*", "*Fraction(1000000, 1)*")
@pytest.mark.parametrize("law", [*LAWS, WIDEST], ids=str)
def test_every_boundary_is_the_floor_of_the_true_one(law):
    """Against 140 decimal digits; no floating point, no flint and no common formula but the law's own."""
    firsts, seconds = _compute_limbs(law, 16, 64)
    words = [int(first) << 64 | int(second) for first, second in zip(firsts, seconds, strict=True)]
    assert words == inversion(law).boundaries(80)
    assert words[0] == 0
    assert words[-1] == 2**80 - 1


@pytest.mark.parametrize("precision", [10, 53, 176])
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_every_ball_holds_the_true_probability(law, precision):
    """At any precision, to the last one of the far tail, where what lies beyond is most of it."""
    with flint.ctx.workprec(precision):
        balls = law.compute_tails(8)
    assert balls[-1] < 2.0**-8 or precision < 53
    with flint.ctx.workprec(400):
        assert all(ball.overlaps(flint.arb(str(tail))) for ball, tail in zip(balls, inversion(law).tails, strict=False))


@pytest.mark.parametrize("guard", [-60, -10, 0, 3])
def test_floors_that_are_not_certain_are_computed_again(guard, monkeypatch):
    """With too few bits the balls hold whole numbers; nothing wrong comes out, it only takes longer."""
    law, precisions = DiscreteGaussian(Fraction(12345, 100)), []
    certain = certified_law._prove_floors

    def recorded(balls):
        precisions.append(flint.ctx.prec)
        return certain(balls)

    monkeypatch.setattr(certified_law, "_prove_floors", recorded)
    monkeypatch.setattr(certified_law, "_GUARD_BITS", guard)
    before = flint.ctx.prec
    assert compute_tail_floors(law, 80) == floors(gaussian_tails(law.variance), 80)
    assert len(precisions) > 1
    assert precisions == sorted(precisions)
    assert flint.ctx.prec == before


def test_a_ball_that_may_hold_a_whole_number_has_no_floor():
    ball = flint.arb
    assert certified_law._prove_floors([ball(7.5), ball(0.5)]) == [7, 0]
    assert certified_law._prove_floors([ball(7), ball(0.5)]) is None
    assert certified_law._prove_floors([ball(7.5, 0.6), ball(0.5)]) is None
    assert certified_law._prove_floors([ball(7.5), ball(0.5, 0.6)]) is None
    assert certified_law._prove_floors([ball(7.5)]) is None


def test_a_quantile_is_given_only_where_it_is_proven(monkeypatch):
    """At 8 bits, with the library's precision and with far too little of it."""
    law = DiscreteGaussian(Fraction(1))
    exact = [inversion(law).value(word, 8) for word in range(256)]
    assert [find_quantile(law, word, 8) for word in range(256)] == exact
    monkeypatch.setattr(certified_law, "_GUARD_BITS", -2)
    vague = [find_quantile(law, word, 8) for word in range(256)]
    assert all(given in (None, true) for given, true in zip(vague, exact, strict=True))
    assert vague.count(None) > exact.count(None) > 0


def every_word_drawn(law: SymmetricDistribution, first_bits: int, further_bits: int, bits: int) -> list[int | None]:
    """What the table makes of every U of some bits: at once where two limbs suffice, by the law; else one by one."""
    exact, rest = inversion(law), bits - first_bits - further_bits
    pairs = range(2 ** (bits - rest))
    known = np.array([pair for pair in pairs if exact.value(pair, bits - rest) is not None])
    firsts, seconds = known >> further_bits, known & (2**further_bits - 1)
    open_still = np.array([exact.value(int(first), first_bits) is None for first in firsts])
    drawn = table(law, first_bits, further_bits).draw(ListedArrays(firsts, seconds[open_still]), len(known))
    values: dict[int, int] = dict(zip(known.tolist(), drawn.tolist(), strict=True))
    return [
        values[word >> rest] if word >> rest in values else drawn_from(law, first_bits, further_bits, word, bits)
        for word in range(2**bits)
    ]


@pytest.mark.representatives
@pytest.mark.parametrize(("first_bits", "further_bits"), [(4, 4), (2, 5), (8, 8)])
@pytest.mark.parametrize("law", SMALL, ids=str)
def test_every_word_of_narrow_limbs_is_decided_as_the_exact_law_says(law, first_bits, further_bits):
    """All words of up to 16 bits, each through all limbs it needs; and the counts are the probabilities."""
    bits = first_bits + further_bits * ((16 - first_bits) // further_bits)
    drawn = every_word_drawn(law, first_bits, further_bits, bits)
    assert drawn == [inversion(law).value(word, bits) for word in range(2**bits)]
    counts, tails = Counter(drawn), [0.5, *map(float, inversion(law).tails), 0.0]
    for k in range(1, len(tails) - 1):
        for signed in (k, -k):
            assert abs(counts[signed] - 2**bits * (tails[k] - tails[k + 1])) <= 2
    assert abs(counts[0] - 2**bits * (1 - 2 * tails[1])) <= 2


@pytest.mark.representatives("law0-1", "law5-1", "law10-2", "law11-3")
@pytest.mark.parametrize(
    ("law", "more"), [*((law, 1) for law in LAWS), *((law, 2 + i % 2) for i, law in enumerate(SMALL))]
)
def test_words_equal_to_a_boundary_are_decided_by_further_limbs(law, more):
    """U and F agree in 16 + 64 (more) bits, and differ in the last place of the limb after those."""
    bits = 16 + 64 * (1 + more)
    boundaries = inversion(law).boundaries(bits)
    for k in (-2, -1, 0, 1):
        boundary = boundaries[len(boundaries) // 2 + k]
        assert 0 < boundary % 2**64 < 2**64 - 1
        assert drawn_from(law, 16, 64, boundary - 1, bits) == k
        assert drawn_from(law, 16, 64, boundary, bits) is None
        assert drawn_from(law, 16, 64, boundary + 1, bits) == k + 1


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_tails_beyond_the_table_are_exact(law):
    """U below 2^-80 and above 1 - 2^-80: values that stand in no table, by further limbs."""
    reach = len(inversion(law).boundaries(80)) // 2
    beyond = []
    for third in (1, 2, 3, 2**20, 2**40 + 1, 2**63, 2**64 - 1):
        value = drawn_from(law, 16, 64, third, 144)
        assert value == inversion(law).value(third, 144)
        mirrored = drawn_from(law, 16, 64, 2**144 - 1 - third, 144)
        assert mirrored == inversion(law).value(2**144 - 1 - third, 144)
        if value is not None:
            beyond += [value, -mirrored]
    assert max(beyond) <= -reach + 1
    assert min(beyond) <= -reach
    assert drawn_from(law, 16, 64, 0, 144) is None
    assert drawn_from(law, 16, 64, 2**144 - 1, 144) is None


def decided_again(exact: Inversion, first_bits: int, further_bits: int, given, size: int) -> tuple[list[int], int]:
    """The values of recorded words by the oracle, one at a time, and how many needed a third limb."""
    calls, values, third = iter(given), [], 0
    while len(values) < size:
        bits, firsts = next(calls)
        assert bits == first_bits
        block = [exact.value(int(first), bits) for first in firsts]
        places = [place for place, value in enumerate(block) if value is None]
        bits, seconds = next(calls)
        assert (bits, len(seconds)) == (further_bits, len(places))
        bits += first_bits
        equal = []
        for place, second in zip(places, seconds, strict=True):
            word = int(firsts[place]) << further_bits | int(second)
            block[place] = exact.value(word, bits)
            if block[place] is None:
                equal.append((place, word))
        for place, word in equal:
            third += 1
            known = bits
            while block[place] is None:
                word = word << further_bits | int(next(calls)[1][0])
                known += further_bits
                block[place] = exact.value(word, known)
        values += block
    assert next(calls, None) is None
    return values, third


@pytest.mark.representatives("*2469, 20))-16*", "*Fraction(2, 1)*")
@pytest.mark.parametrize(
    ("law", "first_bits", "further_bits", "size"),
    [
        (DiscreteGaussian(Fraction(12345, 100)), 16, 64, 25_000),
        (DiscreteGaussian(Fraction(10**6)), 16, 64, 25_000),
        (WIDEST, 16, 64, 12_000),
        (DiscreteLaplace(Fraction(2001, 100)), 16, 64, 25_000),
        (DiscreteGaussian(Fraction(12345, 100)), 4, 8, 70_000),
        (DiscreteGaussian(Fraction(1, 4)), 3, 4, 30_000),
        (DiscreteLaplace(Fraction(2)), 2, 4, 10_000),
    ],
    ids=str,
)
def test_every_draw_of_a_vector_is_what_its_own_words_say(law, first_bits, further_bits, size, monkeypatch):
    """Real random words, over the borders of blocks; each word is used for one draw and in order."""
    monkeypatch.setattr(table_noise, "_DRAWS_PER_BLOCK", 10_000)
    words = RecordedWords(NarrowWords())
    drawn = table(law, first_bits, further_bits).draw(words, size)
    expected, third = decided_again(inversion(law), first_bits, further_bits, words.given, size)
    assert drawn.tolist() == expected
    if further_bits < 64:
        # A sum of independent yes and no: as many cells as hold a boundary, each with probability 2^-bits.
        bits = first_bits + further_bits
        mean = size * len(set(inversion(law).boundaries(bits))) / 2**bits
        assert mean > 900  # so that less than 300 has probability below exp(-295)
        assert third > 300


@pytest.mark.representatives("15857")
@pytest.mark.parametrize("sigma", [4000, 15_857, 16_384])
def test_no_value_of_the_guide_comes_near_16_bits(sigma):
    """A cell holds one value only where P(k) >= 2^-16: at most sigma sqrt(2 ln(26144 / sigma)) <= 15,858 from 0."""
    guide = table(DiscreteGaussian(Fraction(sigma**2)))._guide
    decided = guide[guide != -(2**15)].astype(int)
    assert len(decided) > 0
    assert np.abs(decided).max(initial=0) <= 15_858


def test_tiny_variances_draw_zero_unless_80_bits_say_otherwise():
    """P(X != 0) far below 2^-80, down to numbers that no float holds."""
    for digits in (3, 20, 400):
        for law in (DiscreteGaussian(Fraction(1, 10**digits)), DiscreteLaplace(Fraction(1, 10**digits))):
            assert compute_tail_floors(law, 80) == [0]
            assert drawn_from(law, 16, 64, 2**79, 80) == 0
            assert drawn_from(law, 16, 64, 1, 144) == 0
            assert drawn_from(law, 16, 64, 0, 144) is None


def test_the_key_stream_is_aes_256_in_counter_mode_keyed_by_the_operating_system(monkeypatch):
    """Key, counter and output blocks of NIST SP 800-38A, F.5.5."""
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    counter = bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")
    monkeypatch.setattr(os, "urandom", {32: key, 16: counter}.__getitem__)
    blocks = ("0bdf7df1591716335e9a8b15c860c502", "5a6e699d536119065433863c8f657b94")
    blocks += ("1bc12c9c01610d5d0d8bd6a3378eca62", "2956e1c8693536b1bee99c73a31576b6")
    stream = Keystream()
    assert stream.draw_words(16, 8).tobytes().hex() == blocks[0]
    assert stream.draw_words(64, 0).tobytes() == b""
    assert stream.draw_words(64, 4).tobytes().hex() == blocks[1] + blocks[2]
    assert stream.draw_words(16, 8).tobytes().hex() == blocks[3]


def test_no_two_calls_draw_the_same():
    """From one source or two, in one thread or many: 40 draws of sigma 1,000 are equal below (1/2506)^40 a pair."""
    one, other = TableNoise(), TableNoise()
    with ThreadPoolExecutor(8) as pool:
        here = [source.draw(Fraction(10**6), 1, 0, 40) for source in (one, one, other)]
        there = list(pool.map(lambda _: one.draw(Fraction(10**6), 1, 0, 40), range(200)))
    assert len({tuple(drawn.tolist()) for drawn in here + there}) == 203


def test_threads_that_begin_with_many_laws_at_once_get_the_right_tables():
    """Flint's precision is one for the process: builders must not spoil it for each other, or for anybody else."""
    laws = [DiscreteGaussian(Fraction(1000 + i, 7)) for i in range(32)]
    before, interval = flint.ctx.prec, sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            built = list(pool.map(lambda law: compute_tail_floors(law, 80 + law.variance.numerator % 9), laws))
    finally:
        after = flint.ctx.prec
        flint.ctx.prec = before
        sys.setswitchinterval(interval)
    assert after == before
    assert built == [floors(gaussian_tails(law.variance), 80 + law.variance.numerator % 9) for law in laws]


@pytest.mark.parametrize("variance", [Fraction(0), Fraction(-1), MAX_TABLE_VARIANCE + Fraction(1, 3), Fraction(2**100)])
def test_no_noise_and_noise_too_wide_for_a_table_are_refused(variance, monkeypatch):
    monkeypatch.setattr(os, "urandom", lambda _: pytest.fail("a key was made"))
    with pytest.raises(OdError, match=r"OD-NOISE-TABLE.*opendp") as error:
        TableNoise().draw(variance, 1, 0, 3)
    assert error.value.spent == "the level stays charged"


@pytest.mark.parametrize("scale", [Fraction(0), Fraction(-1), Fraction(11_586), Fraction(2**100)])
def test_laplace_scales_of_no_table_are_refused(scale):
    with pytest.raises(OdError, match=r"OD-NOISE-TABLE.*opendp"):
        TableNoise().draw_laplace(scale, 3)


@pytest.mark.parametrize("name", ["draw", "draw_laplace", "largest_variance", "anything"])
def test_nothing_of_an_instance_can_be_replaced(name):
    with pytest.raises(AttributeError):
        setattr(TableNoise(), name, None)
