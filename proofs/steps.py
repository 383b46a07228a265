"""The single steps of the proofs as formulas, for z3: what holds for all numbers, and what is refuted once changed.

A step is named as the theorem in Coq that rests on it. Its faults are the same formula with a part changed, for which
z3 finds numbers; `rows_that_need_it` finds whole runs each draw of which needs all of its shift.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import z3

from abcdp.audit import Pattern

D, rho, rho2, nu, level, m = z3.Ints("D rho rho2 nu level m")
x, y, x2, y2, d = z3.Reals("x y x2 y2 d")
budget, asked = z3.Reals("budget asked")
scale, first, second, row, row2 = z3.Ints("scale first second row row2")
other, other2, noise, noise2 = z3.Ints("other other2 noise noise2")
radius, long, a, b, low, high = z3.Ints("radius long a b low high")


def size(number: z3.ArithRef) -> z3.ArithRef:
    """Return the absolute value."""
    return z3.If(number >= 0, number, -number)


def up(number: z3.ArithRef) -> z3.ArithRef:
    """Return the number rounded up: z3 rounds down."""
    return -z3.ToInt(-number)


def larger(one: z3.ArithRef, two: z3.ArithRef) -> z3.ArithRef:
    """Return the larger of two absolute values."""
    return z3.If(size(one) > size(two), size(one), size(two))


def held(number: z3.ArithRef) -> z3.ArithRef:
    """Return a number that saturates at both ends."""
    above = z3.If(number < low, low, number)
    return z3.If(above > high, high, above)


def near(one: z3.ArithRef, two: z3.ArithRef) -> z3.BoolRef:
    """Return that neighbours move a number of steps by at most D."""
    return z3.And(D >= 0, size(one - two) <= D)


def before(v: z3.ArithRef, i: z3.ArithRef, w: z3.ArithRef, j: z3.ArithRef) -> z3.BoolRef:
    """Return that row i with the value v comes before row j with the value w."""
    return z3.Or(v < w, z3.And(v == w, i < j))


@dataclass(frozen=True)
class Step:
    """A formula that holds, the theorem that rests on it, and the same with faults, which do not."""

    theorem: str
    holds: z3.BoolRef
    faults: dict[str, z3.BoolRef] = field(default_factory=dict)


def _nearest(raised: z3.ArithRef) -> z3.BoolRef:
    """Return that a winner with so much more noise stays before a loser."""
    winner, loser = first - noise, second - noise2
    after = before(other - (noise + raised), row, other2 - noise2, row2)
    given = z3.And(near(first, other), near(second, other2), row != row2, before(winner, row, loser, row2))
    return z3.Implies(given, after)


def _quotient(part: z3.ArithRef, whole: z3.ArithRef, k: z3.ArithRef, rounded: z3.ArithRef) -> z3.BoolRef:
    """Return that k * part / whole was rounded down to a number."""
    return z3.And(rounded * whole <= k * part, (rounded + 1) * whole > k * part)


def _topped(wide: z3.ArithRef, narrow: z3.ArithRef, *weighed: z3.ArithRef) -> z3.BoolRef:
    """Return that wide noise is narrow noise plus more, all denominators multiplied out; the weight is of two laws."""

    def parts(p: z3.ArithRef) -> tuple[z3.ArithRef, z3.ArithRef]:
        return (1 - p) * (1 - p), 1 - 2 * p * d + p * p

    (top, bottom), (top2, bottom2) = parts(wide), parts(narrow)
    one, two = weighed
    share, whole = (1 - one) * (1 - one) * two, (1 - two) * (1 - two) * one
    return top * bottom2 * whole == top2 * (share * bottom + (whole - share) * top)


_MOVED = z3.And(size(x - y) <= d, size(x2 - y2) <= d)
_LESS = z3.And(a >= 0, a <= 12, b >= 0, b <= 12, radius >= 1, radius <= 12)

STEPS = [
    Step(
        "run_aligned",
        z3.Implies(z3.And(near(rho, rho2), rho + nu > level), rho2 + nu > level - D),
        {
            "no threshold noise": z3.Implies(z3.And(near(rho, rho2), rho + nu > level), rho2 + nu > level),
            "both signs flipped": z3.Implies(z3.And(near(rho, rho2), rho + nu > level), rho2 + nu > level + D),
        },
    ),
    Step(
        "run_aligned",
        z3.Implies(z3.And(near(rho, rho2), rho + nu <= level), rho2 + (nu - 2 * D) <= level - D),
        {"equal scales": z3.Implies(z3.And(near(rho, rho2), rho + nu <= level), rho2 + (nu - D) <= level - D)},
    ),
    Step(
        "run_aligned_gaps",
        z3.Implies(near(rho, rho2), (level - D) - (rho2 + (nu - D + rho - rho2)) == level - (rho + nu)),
        {
            "the shift of rows": z3.Implies(near(rho, rho2), (level - D) - (rho2 + (nu - 2 * D)) == level - (rho + nu)),
            # the gap to a public threshold stays where the noise makes up for the distance; then the accept does not
            "the public threshold": z3.Implies(
                z3.And(near(rho, rho2), rho + nu <= level), rho2 + (nu + rho - rho2) <= level - D
            ),
        },
    ),
    Step(
        "shift_gaps_cost",
        z3.Implies(near(rho, rho2), z3.And(-D + rho - rho2 >= -2 * D, -D + rho - rho2 <= 0)),
        {"half of the cost": z3.Implies(near(rho, rho2), -D + rho - rho2 >= -D)},
    ),
    Step(
        "shift_cost",
        z3.Implies(D >= 0, size(nu - 2 * D) - size(nu) <= 2 * D),
        {"half of the cost": z3.Implies(D >= 0, size(nu - 2 * D) - size(nu) <= D)},
    ),
    Step(
        "thresholds_cost",
        z3.Implies(D >= 0, size(m - D) - size(m) <= D),
        {"half of the cost": z3.Implies(D >= 0, 2 * (size(m - D) - size(m)) <= D)},
    ),
    Step(
        "shift_one_sided",
        z3.Implies(z3.And(D >= 0, nu <= 0), nu - 2 * D <= 0),
        {"noise that raises": z3.Implies(z3.And(D >= 0, nu >= 0), nu - 2 * D >= 0)},
    ),
    Step(
        "nearest_aligned",
        _nearest(2 * D),
        {"half of the shift": _nearest(D), "none": _nearest(z3.IntVal(0))},
    ),
    Step(
        "raise_one_sided",
        z3.Implies(z3.And(D >= 0, noise >= 0), noise + 2 * D >= 0),
        {"noise that is added": z3.Implies(z3.And(D >= 0, noise >= 0), noise - 2 * D >= 0)},
    ),
    Step(
        "laplace_cost",
        size(nu + first - second) - size(nu) <= size(first - second),
        {"the largest entry": size(first) + size(second) <= larger(first, second)},
    ),
    Step(
        # two entries
        "box_cost",
        larger(nu + first, m + second) - larger(nu, m) <= larger(first, second),
        {"the second entry": larger(nu + first, m + second) - larger(nu, m) <= size(second)},
    ),
    Step(
        "saturate_move",
        z3.Implies(low <= high, size(held(first) - held(second)) <= size(first - second)),
        {"a wrap around": size(first % 8 - second % 8) <= size(first - second)},
    ),
    Step(
        "scalar_rule",
        z3.Implies(_MOVED, size(z3.ToInt(x) - z3.ToInt(y)) <= up(d)),
        {"rounded down": z3.Implies(_MOVED, size(z3.ToInt(x) - z3.ToInt(y)) <= z3.ToInt(d))},
    ),
    Step(
        "floors_rule",
        z3.Implies(
            size(x - y) + size(x2 - y2) <= d,
            size(z3.ToInt(x) - z3.ToInt(y)) + size(z3.ToInt(x2) - z3.ToInt(y2)) <= up(d + 2) - 1,
        ),
        {
            "the scalar rule": z3.Implies(
                size(x - y) + size(x2 - y2) <= d,
                size(z3.ToInt(x) - z3.ToInt(y)) + size(z3.ToInt(x2) - z3.ToInt(y2)) <= up(d),
            )
        },
    ),
    Step(
        "vector_within_budget",
        z3.Implies(
            z3.And(budget > 0, asked > 0, scale >= 1, scale * budget >= asked, (scale - 1) * budget < asked),
            asked <= budget * scale,
        ),
        {
            "rounded down": z3.Implies(
                z3.And(budget > 0, asked > 0, scale >= 1, scale * budget <= asked, (scale + 1) * budget > asked),
                asked <= budget * scale,
            )
        },
    ),
    Step(
        # one entry of two vectors
        "l2_ball_apart",
        (first - second) * (first - second) <= 2 * first * first + 2 * second * second,
        {"the radius": (first - second) * (first - second) <= first * first + second * second},
    ),
    Step(
        "added_total",
        scale * (first + second) - (scale + 1) * second == scale * first - second,
        {"of n instead of n + 1": scale * (first + second) - scale * second == scale * first - second},
    ),
    Step(
        "top_up",
        _topped(x, y, x, y),
        {"the weight of the other law": z3.Implies(z3.And(x == z3.Q(1, 2), y == z3.Q(1, 4)), _topped(x, y, y, x))},
    ),
    Step(
        # two entries up to 12: the general theorem is Coq's
        "l1_ball",
        z3.Implies(
            z3.And(
                _LESS,
                long == z3.If(a + b > radius, a + b, radius),
                _quotient(radius, long, a, first),
                _quotient(radius, long, b, second),
            ),
            first + second <= radius,
        ),
        {
            "rounded up": z3.Implies(
                z3.And(
                    _LESS,
                    long == z3.If(a + b > radius, a + b, radius),
                    _quotient(radius, long, a, first - 1),
                    _quotient(radius, long, b, second - 1),
                ),
                first + second <= radius,
            )
        },
    ),
]


def refuted(formula: z3.BoolRef, *more: z3.BoolRef) -> z3.ModelRef | None:
    """Return numbers for which a formula is false, if there are any; z3 must decide."""
    solver = z3.Solver()
    solver.set("timeout", 30_000)
    solver.add(z3.Not(formula), *more)
    answer = solver.check()
    assert answer != z3.unknown, solver.reason_unknown()
    return solver.model() if answer == z3.sat else None


def number(model: z3.ModelRef, name: z3.ArithRef) -> int:
    """Return a whole number of a model."""
    value = model.eval(name, model_completion=True)
    return int(value.as_long())


def rows_that_need_it(move: int, rejects: int, accepts: int, *, far: int, upwards: bool = False) -> Pattern:
    """Return neighbours and an output of sparse vector, of which each draw turns over if its shift is a step too small.

    Rejected draws under a threshold that is shifted by -move + 1, or by +move, `upwards`; accepted ones whose noise is
    shifted by -2 move + 1. Rejected draws lie `far` below the threshold and accepted ones as far above it.
    """
    solver, z = z3.Solver(), z3.Int("z")
    margins, moved = [], []
    for t in range(rejects + accepts):
        here, there, own = z3.Ints(f"here{t} there{t} own{t}")
        solver.add(size(here - there) <= move)
        if t < rejects:
            lowered = move if upwards else 1 - move
            solver.add(here >= far, own > here + z, z3.Not(own > there + z + lowered))
        else:
            solver.add(here <= -far, own <= here + z, z3.Not(own + 1 - 2 * move <= there + z - move))
        margins.append(here)
        moved.append(there)
    assert solver.check() == z3.sat
    model = solver.model()
    pair = (tuple(number(model, one) for one in names) for names in (margins, moved))
    return Pattern(*pair, (0,) * rejects + (1,) * accepts)


def losers_that_need_it(move: int, losers: int, *, far: int) -> Pattern:
    """Return neighbours among which row 0 wins with noise that is added, by the noise of all others.

    Its own noise is 0 and cannot be taken away, so each loser beats it if its noise is raised a step too little; losers
    lie `far` nearer. Margins are minus the distances.
    """
    solver, winner, moved_winner = z3.Solver(), z3.Int("winner"), z3.Int("moved_winner")
    solver.add(size(winner - moved_winner) <= move)
    here, there = [winner], [moved_winner]
    for t in range(losers):
        loser, moved, own = z3.Ints(f"loser{t} moved{t} own{t}")
        solver.add(size(loser - moved) <= move, own >= 0, loser <= winner - far)
        solver.add(winner <= loser + own, z3.Not(moved_winner <= moved + own + 2 * move - 1))
        here.append(loser)
        there.append(moved)
    assert solver.check() == z3.sat
    model = solver.model()
    pair = (tuple(-number(model, one) for one in names) for names in (here, there))
    return Pattern(*pair, (1,) + (0,) * losers)


def possible_once(threshold: int, distance: int, move: int, mark: int) -> tuple[int, int]:
    """Return margins of a draw, for neighbours, between which an answer about it turns from impossible to possible.

    Noise is one-sided: `threshold` and `distance` are the signs of the two.
    """
    solver = z3.Solver()
    here, there, z, own, z2, own2 = z3.Ints("here there z own z2 own2")

    def answer(margin: z3.ArithRef, level_noise: z3.ArithRef, draw_noise: z3.ArithRef) -> z3.BoolRef:
        hit = draw_noise <= margin + level_noise
        return hit if mark else z3.Not(hit)

    solver.add(size(here - there) <= move)
    solver.add(
        z3.ForAll([z, own], z3.Implies(z3.And(threshold * z >= 0, distance * own >= 0), z3.Not(answer(here, z, own))))
    )
    solver.add(threshold * z2 >= 0, distance * own2 >= 0, answer(there, z2, own2))
    assert solver.check() == z3.sat
    model = solver.model()
    return number(model, here), number(model, there)
