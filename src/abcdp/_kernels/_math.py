"""Vectorisable elementary functions for the compiled kernels.

Numba from the package registries has no vector mathematics library, so `math.exp` or `math.sin` in a loop stays scalar.
These polynomial forms use only arithmetic that the compiler turns into vector instructions.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

# Reassociation lets the compiler split a sum over vector lanes; everything else of IEEE arithmetic (NaN, infinities)
# stays.
FAST = {"reassoc", "nsz", "contract", "arcp"}
# Where an addition is there to be rounded, it may not be cancelled. The flags sit on each instruction, so these
# functions must not be inlined by numba (which would give them the caller's flags); the compiler inlines them later,
# flags and all. And they must name their flags: without `fastmath` a function takes over those of its first caller.
CAREFUL = {"nsz", "contract"}


@intrinsic
def _bits_of(typing_context: Any, value: Any) -> Any:
    """Reinterpret the 64 bits of a float as an integer."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), build


@intrinsic
def _float_of(typing_context: Any, value: Any) -> Any:
    """Reinterpret the 64 bits of an integer as a float."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), build


_ROUND = 6755399441055744.0  # 1.5 * 2**52: adding it leaves the nearest integer in the low bits
_LOG2E = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10


@njit(fastmath=False)
def add_exactly(total: float, carry: float, value: float) -> tuple[float, float]:
    """Return total + value and carry plus what the sum has lost to rounding (Knuth's two-sum)."""
    new = total + value
    part = new - total
    return new, carry + ((total - (new - part)) + (value - part))


@njit(fastmath=CAREFUL)
def exp_nonpositive(x: float) -> float:
    """Return e**x for x <= 0 within 2 ulp; below -700 it is the value at -700, about 1e-304."""
    x = max(x, -700.0)
    shifted = x * _LOG2E + _ROUND
    n = shifted - _ROUND
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    # Taylor to degree 13 on |r| <= ln(2)/2: remainder below 4e-18, in two interleaved halves for parallel issue.
    r2 = r * r
    even = 1.0 / 479001600.0
    even = even * r2 + 1.0 / 3628800.0
    even = even * r2 + 1.0 / 40320.0
    even = even * r2 + 1.0 / 720.0
    even = even * r2 + 1.0 / 24.0
    even = even * r2 + 0.5
    odd = 1.0 / 6227020800.0
    odd = odd * r2 + 1.0 / 39916800.0
    odd = odd * r2 + 1.0 / 362880.0
    odd = odd * r2 + 1.0 / 5040.0
    odd = odd * r2 + 1.0 / 120.0
    odd = odd * r2 + 1.0 / 6.0
    p = 1.0 + (r + r2 * (even + odd * r))
    return p * _float_of((_bits_of(shifted) + 1023) << 52)


@njit(fastmath=CAREFUL)
def sincos_quarter(t: float) -> tuple[float, float]:
    """Return sin(t), cos(t) for |t| <= pi/4 within 2e-16."""
    u = t * t
    s = -1.0 / 1307674368000.0
    s = s * u + 1.0 / 6227020800.0
    s = s * u - 1.0 / 39916800.0
    s = s * u + 1.0 / 362880.0
    s = s * u - 1.0 / 5040.0
    s = s * u + 1.0 / 120.0
    s = s * u - 1.0 / 6.0
    c = 1.0 / 20922789888000.0
    c = c * u - 1.0 / 87178291200.0
    c = c * u + 1.0 / 479001600.0
    c = c * u - 1.0 / 3628800.0
    c = c * u + 1.0 / 40320.0
    c = c * u - 1.0 / 720.0
    c = c * u + 1.0 / 24.0
    c = c * u - 0.5
    return t + t * u * s, 1.0 + u * c


@njit(fastmath=CAREFUL)
def sincos_turn(t: float) -> tuple[float, float]:
    """Return sin(t), cos(t) for |t| <= pi within 2e-15: a quarter of the angle, doubled twice."""
    s, c = sincos_quarter(0.25 * t)
    s, c = 2.0 * s * c, 1.0 - 2.0 * s * s
    return 2.0 * s * c, 1.0 - 2.0 * s * s


_TURNS = 0.15915494309189535
_TWO_PI_HIGH = 6.283185307179586
_TWO_PI_LOW = 2.4492935982947064e-16


@njit(fastmath=CAREFUL)
def sincos(t: float) -> tuple[float, float]:
    """Return sin(t), cos(t) for |t| <= 1e15 within 2e-15, plus an ulp of t without fused multiply-adds."""
    n = (t * _TURNS + _ROUND) - _ROUND
    return sincos_turn((t - n * _TWO_PI_HIGH) - n * _TWO_PI_LOW)
