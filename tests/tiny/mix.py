"""Numbers derived from a seed, the same as src/base/mix_for_test.h has: no input has to be stored."""
import numpy as np


def mix(seed, count):
    """The first `count` numbers of `seed`."""
    x = (np.arange(count, dtype=np.uint64) * 2654435761 + seed * 40503 + 1) & 0xFFFFFFFF
    for shift, factor in ((15, 0x2C1B3C6D), (12, 0x297A2D39)):
        x ^= x >> np.uint64(shift)
        x = (x * np.uint64(factor)) & np.uint64(0xFFFFFFFF)
    return (x ^ (x >> np.uint64(15))).astype(np.int64)
