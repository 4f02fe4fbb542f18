"""Fits the slopes that an activation's backward takes in the place of its own (kernels/codes.h).

python kernels/fit_two_bit.py        prints threshold, slope and energy for each activation

An activation h of which h(x) - x/2 is even is fitted by straight lines that meet at -t, 0 and t: 0,
-a (x + t), that plus x, x. What is least is the energy, the integral of (h - fit)^2 over all x
(LowMemoryBP, arXiv 2406.16282, section 3). By symmetry it is twice that over x < 0, and for a given
t the best a is a projection, so that one number is left to search for.
"""

import math

FAR = {"gelu": 12.0, "gelu_tanh": 12.0, "silu": 60.0}  # From there on h is 0 to double precision.
POINTS = 4000  # Of Simpson's rule, on each side of -t.


def gelu(x):
    return 0.5 * x * math.erfc(-x / math.sqrt(2.0))


def gelu_tanh(x):
    return x / (1.0 + math.exp(-2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def silu(x):
    return x / (1.0 + math.exp(-x))


def integral(f, begin, end):
    step = (end - begin) / POINTS
    inner = sum((4 if i % 2 else 2) * f(begin + i * step) for i in range(1, POINTS))
    return (f(begin) + inner + f(end)) * step / 3.0


def fit_at(h, far, t):
    """The best slope a at threshold t, and the energy."""
    a = -integral(lambda x: h(x) * (x + t), -t, 0.0) / (t**3 / 3.0)
    below = integral(lambda x: h(x) ** 2, -far, -t)
    return a, 2.0 * (below + integral(lambda x: (h(x) + a * (x + t)) ** 2, -t, 0.0))


def fit(h, far):
    """Threshold, slope and energy, by golden section: the energy has one minimum in t."""
    ratio = (math.sqrt(5.0) - 1.0) / 2.0
    low, high = 0.5, far
    while high - low > 1e-9:
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if fit_at(h, far, left)[1] < fit_at(h, far, right)[1]:
            high = right
        else:
            low = left
    t = 0.5 * (low + high)
    return (t, *fit_at(h, far, t))


if __name__ == "__main__":
    for activation in (gelu, gelu_tanh, silu):
        name = activation.__name__
        print("%-9s t %.7f  a %.7f  energy %.8f" % (name, *fit(activation, FAR[name])))
