"""The criteria of parity, each as a function that gives the list of its violations.

A violation is a sentence with the tensor or step, the figure and the limit. An empty list is a
pass; comparing nothing at all is a violation too.
"""

import numpy as np

LOSS_TOLERANCE = 1e-5  # Relative, fp32, every one of 20 steps.
GRADIENT_FACTOR = 2.0  # Of transformers' own fp32 error against float64,
GRADIENT_FLOOR = 1e-7  # or this.
BF16_FACTOR = 1.5  # Of transformers' own bf16 error against float64.
BF16_CHANGE_FACTOR = 2.0  # The same of what 20 steps changed, which for a norm are a few numbers.
WEIGHT_TOLERANCE = 1e-4  # Relative L2 of what 20 AdamW steps changed.
SILENT_SHARE = 1e-9  # A tensor with less of the global gradient norm has no direction to learn.
# 32 x 1 against 1 x 32: oneDNN's products add in another order for another number of rows.
BATCH_TOLERANCE = 2e-6


def distance(ours, reference):
    """Relative L2 distance of two arrays."""
    ours, reference = np.asarray(ours, np.float64), np.asarray(reference, np.float64)
    norm = np.linalg.norm(reference)
    gap = np.linalg.norm(ours - reference)
    if norm == 0.0:
        return 0.0 if gap == 0.0 else np.inf
    return gap / norm


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


def weights_differ(ours, reference, initial, left_out=frozenset(), tolerance=WEIGHT_TOLERANCE):
    """Learned weights, relative to what the steps changed. `left_out`: names not compared."""
    found = keys_differ(ours, reference)
    if found:
        return found
    for key in sorted(set(reference) - set(left_out)):
        start = np.asarray(initial[key], np.float64)
        gap = distance(np.asarray(ours[key], np.float64) - start, reference[key] - start)
        if not gap <= tolerance:
            found.append(f"{key} after training: {gap:.3g} of its change, limit {tolerance}")
    return found


def changes_differ(ours, theirs, truth, factor=BF16_CHANGE_FACTOR):
    """What training changed is at most `factor` times as far from the truth as theirs."""
    found = keys_differ(ours.weights, truth.weights)
    for key in () if found else sorted(truth.weights):
        change = truth.weights[key] - truth.initial[key]
        start = np.asarray(truth.initial[key], np.float64)
        gap = distance(ours.weights[key] - start, change)
        limit = factor * distance(theirs.weights[key] - start, change)
        if not gap <= limit:
            found.append(f"{key} after training: {gap:.3g} of its change, limit {limit:.3g}")
    return found


def same_gradients(ours, other, tolerance=BATCH_TOLERANCE):
    """Two ways to the same gradient, tensor by tensor."""
    found = keys_differ(ours, other)
    if found:
        return found
    gaps = {key: distance(ours[key], other[key]) for key in other}
    return [f"{key}: {gap:.3g} apart" for key, gap in gaps.items() if not gap <= tolerance]
