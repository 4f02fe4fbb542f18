"""The criteria of parity, each as a function that gives the list of its violations.

A violation is a sentence with the tensor or step, the figure and the limit. An empty list is a
pass; comparing nothing at all is a violation too.
"""

import re

import numpy as np

LOSS_TOLERANCE = 1e-5  # Relative, fp32, every one of 20 steps.
GRADIENT_FACTOR = 2.0  # Of transformers' own fp32 error against float64,
GRADIENT_FLOOR = 1e-7  # or this.
BF16_FACTOR = 1.5  # Of transformers' own bf16 error against float64.
# Of the error of a tensor's gradient: an element below that has no direction but rounding's, and
# AdamW makes as much of it as of any other. One such element of 72 was 97 % of a norm's error.
NOISE_FACTOR = 4.0
SETTLED_SHARE = 0.8  # Of all elements, at least.
# The same in fp32, where the changes of 20 steps are held to WEIGHT_TOLERANCE: a key bias moves all
# scores of a query alike but for the rotation, so that a quarter of its elements are near rounding.
KEY_BIAS_NOISE_FACTOR = 1000.0
LEAST_SEEN = 0.6  # Of the elements of such a tensor.
WEIGHT_TOLERANCE = 1e-4  # Relative L2 of what 20 AdamW steps changed.
SILENT_SHARE = 1e-9  # A tensor with less of the global gradient norm has no direction to learn.
SAME_LOSS_TOLERANCE = 1e-7  # Relative, fp32: of the same rows, cut or packed otherwise,
SAME_GRADIENT_TOLERANCE = 1.5e-6  # and at most that, where transformers' error would allow more.


def distance(ours, reference):
    """Relative L2 distance of two arrays."""
    ours, reference = np.asarray(ours, np.float64), np.asarray(reference, np.float64)
    norm = np.linalg.norm(reference)
    gap = np.linalg.norm(ours - reference)
    if norm == 0.0:
        return 0.0 if gap == 0.0 else np.inf
    return gap / norm


def rms(values):
    """Root of the mean square."""
    return float(np.sqrt(np.mean(np.square(values)))) if np.size(values) else 0.0


def global_norm(tensors):
    """L2 norm of all tensors together."""
    return float(np.sqrt(sum(np.sum(np.square(t, dtype=np.float64)) for t in tensors.values())))


def keys_differ(ours, reference):
    """Missing and extra tensors, and wrong shapes."""
    found = [f"missing: {key}" for key in sorted(set(reference) - set(ours))]
    found += [f"extra: {key}" for key in sorted(set(ours) - set(reference))]
    for key in sorted(set(ours) & set(reference)):
        if ours[key].shape != reference[key].shape:
            found.append(f"{key}: shape {ours[key].shape}, not {reference[key].shape}")
    return found if reference else ["nothing to compare"]


def losses_differ(ours, reference, tolerance=LOSS_TOLERANCE):
    """Losses step by step."""
    if not reference or len(ours) != len(reference):
        return [f"{len(ours)} losses, not {len(reference)}"]
    found = []
    for step, (a, b) in enumerate(zip(ours, reference), start=1):
        if not abs(a - b) <= tolerance * abs(b):
            found.append(f"loss of step {step}: {a!r}, not {b!r} (limit {tolerance} relative)")
    return found


def gradients_differ(ours, theirs, truth, factor=GRADIENT_FACTOR, floor=GRADIENT_FLOOR):
    """Every gradient is at most `factor` times as far from the truth as theirs, or within floor."""
    found = keys_differ(ours, truth)
    if found:
        return found
    for key in sorted(truth):
        gap = distance(ours[key], truth[key])
        limit = max(factor * distance(theirs[key], truth[key]), floor)
        if not gap <= limit:
            found.append(f"gradient of {key}: {gap:.3g} from float64, limit {limit:.3g}")
    return found


def silent_tensors(gradients):
    """Names of tensors whose gradient is nothing but rounding."""
    limit = SILENT_SHARE * global_norm(gradients)
    return {key for key, g in gradients.items() if np.linalg.norm(g) < limit}


def weights_differ(ours, theirs, left_out=frozenset(), seen=None):
    """Learned weights, relative to what the steps changed. `left_out`: names not compared; `seen`:
    of some tensors, the elements that are, and these by kind (kinds_of): of nine such biases after
    20 steps, with the same errors of gradients, the changes lay 1e-5 to 1.3e-4 apart."""
    found = keys_differ(ours.weights, theirs.weights)
    if found:
        return found
    seen, gaps = seen or {}, {}
    for key in sorted(set(theirs.weights) - set(left_out)):
        mask = seen.get(key, np.ones_like(theirs.weights[key], bool))
        if not np.mean(mask) >= LEAST_SEEN:
            found.append(f"{key}: {np.mean(mask):.0%} of its elements have a direction")
        start = np.asarray(theirs.initial[key], np.float64)
        changes = ((run.weights[key] - start)[mask] for run in (ours, theirs))
        gaps[key] = distance(*changes)
    kinds = {key: [key] for key in gaps if key not in seen} | kinds_of(set(gaps) & set(seen))
    for kind, keys in kinds.items():
        gap = rms([gaps[key] for key in keys])
        if not gap <= WEIGHT_TOLERANCE:
            found.append(
                f"{kind} after training: {gap:.3g} of its change, limit {WEIGHT_TOLERANCE}"
            )
    return found


def kinds_of(keys):
    """{key without its layer's number: keys}. The errors of two runs in one small tensor are two
    draws, whose ratio is mostly chance; over the layers it is less."""
    kinds = {}
    for key in sorted(keys):
        # Of T5 a block is a layer, and its "layers" are the halves of one.
        kind = re.sub(r"\b(block|layers?)\.\d+\.", r"\1.*.", key, count=1)
        kinds.setdefault(kind, []).append(key)
    return kinds


def kinds_differ(ours, theirs, truth, factor=BF16_FACTOR):
    """Gradients of a kind are at most `factor` times as far from the truth as theirs."""
    found = keys_differ(ours, truth)
    for kind, keys in {} if found else kinds_of(truth).items():
        gap, limit = (rms([distance(g[key], truth[key]) for key in keys]) for g in (ours, theirs))
        if not gap <= factor * limit:
            found.append(f"gradient of {kind}: {gap:.3g} from float64, {factor} x {limit:.3g}")
    return found


def losses_are_farther(ours, ways, truth, factor=BF16_FACTOR):
    """The losses of all steps together are at most `factor` times as far from the truth as those of
    the farthest of their `ways`."""
    if not truth or len(ours) != len(truth):
        return [f"{len(ours)} losses, not {len(truth)}"]
    gap, *own = (rms(np.subtract(losses, truth)) for losses in (ours, *ways))
    within = gap <= factor * max(own)
    return [] if within else [f"losses: {gap:.3g} from float64, {factor} x {max(own):.3g}"]


def settled(theirs, truth, factor=NOISE_FACTOR):
    """Per tensor, which elements of the first gradient are that many times their error."""
    return {key: np.abs(g) >= factor * rms(theirs[key] - g) for key, g in truth.items() if g.any()}


def changes_differ(ours, ways, truth, factor=BF16_FACTOR):
    """What training changed of the settled elements is, kind by kind, at most `factor` times as far
    from the truth as the farthest of their `ways`."""
    found = keys_differ(ours.weights, truth.weights)
    seen = settled(ways[0].gradients, truth.gradients)
    share = sum(np.sum(mask) for mask in seen.values()) / sum(mask.size for mask in seen.values())
    if share < SETTLED_SHARE:
        found.append(f"only {share:.0%} of the elements have a direction")
    for kind, keys in {} if found else kinds_of(seen).items():
        gap, *own = (
            rms(np.concatenate([(run.weights[k] - truth.weights[k])[seen[k]] for k in keys]))
            for run in (ours, *ways)
        )
        if not gap <= factor * max(own):
            found.append(f"{kind} after training: off by {gap:.3g}, {factor} x {max(own):.3g}")
    return found


def same_gradients(ours, other, theirs, truth):
    """Two of our ways to the same gradient: no farther apart than either may be from float64.
    (Products of another number of rows add in another order.)"""
    found = keys_differ(ours, other)
    for key in [] if found else other:
        gap = distance(ours[key], other[key])
        limit = max(GRADIENT_FACTOR * distance(theirs[key], truth[key]), GRADIENT_FLOOR)
        limit = min(limit, SAME_GRADIENT_TOLERANCE)
        if not gap <= limit:
            found.append(f"{key}: {gap:.3g} apart, limit {limit:.3g}")
    return found
