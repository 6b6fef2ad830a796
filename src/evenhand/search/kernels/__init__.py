"""The compiled loops, one module for each noun. Free functions over arrays; related arrays are a NamedTuple.

Conventions: a *plane* is a row of ``planes``, laid out as ``v_0 .. v_K, gain, effect_1 .. effect_C``. It
decides 1 at the point x = (t, w_1 .. w_K) iff ``v . x > 0``, where v = (m, -g). A *ladder* is a sequence
of bounds, strict to loose: ``lower`` and ``upper`` have one row for each step, and whatever meets a step
meets those after it, so the best utility found never decreases along the ladder. *Sums* are a utility and the values
of the constraints, in this order.

Every kernel has its own test in ``tests/search/kernels``.
"""
