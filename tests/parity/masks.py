"""Which tokens of a row are hidden in an epoch: the worker's draws (worker/train/masking.h),
written a second time from their description and from the paper of the generator (Salmon et al.
2011)."""

MASK_OP = (1 << 24) - 6
EVALUATION = (1 << 32) - 1  # The epoch of evaluations.
MASK32 = (1 << 32) - 1


def philox(counter, seed):
    """Philox4x32-10."""
    keys = [seed & MASK32, seed >> 32]
    c = list(counter)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ keys[0], b & MASK32, a >> 32 ^ c[3] ^ keys[1], a & MASK32]
        keys = [(keys[0] + 0x9E3779B9) & MASK32, (keys[1] + 0xBB67AE85) & MASK32]
    return c


def masked(row, ids, weights, epoch, settings):
    """(ids to read, labels with -100) of a row, by its number. `settings`: (seed, probability, the
    mask's id, of how many tokens one is drawn)."""
    seed, probability, mask, vocabulary = settings
    read, labels = list(ids), [-100] * len(ids)
    for t, (token, weight) in enumerate(zip(ids, weights)):
        words = philox((t, MASK_OP << 8, epoch, row), seed)
        chosen, what = ((word >> 8) / (1 << 24) for word in words[:2])
        if not weight or chosen >= probability:
            continue
        labels[t] = token
        if what < 0.8:
            read[t] = mask
        elif what < 0.9:
            read[t] = (words[2] << 32 | words[3]) * vocabulary >> 64
    return read, labels
