"""The only source of private noise: integers, drawn exactly, from cryptographic randomness.

Floating-point Laplace noise leaks through its low-order bits (Mironov 2012), so no law here is computed in floating
point. Two independent samplers serve a release: :class:`~abcdp.sampling.opendp.OpenDPNoise`, which others read and use
too, the default; and :class:`~abcdp.sampling.digits.FastNoise`, some fifteen times faster. Those of
:mod:`~abcdp.sampling.seeded` and :mod:`~abcdp.sampling.common` repeat themselves and protect nobody.
"""
