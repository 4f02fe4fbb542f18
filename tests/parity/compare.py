"""The criteria of parity, each as a function that gives the list of its violations.

A violation is a sentence with the tensor or step, the figure and the limit. An empty list is a
pass; comparing nothing at all is a violation too.
"""

import re

import numpy as np

LOSS_TOLERANCE = 1e-5  # Relative, fp32, every one of 20 steps.
# How far from float64 we may be, times as far as transformers in the same dtype: all kinds of
# tensors together (a geometric mean), and each one. The errors of a kind are a few draws, whose
# ratio is mostly chance and depends on the processor: it was up to 2.0, its median 0.8 to 1.1.
TOGETHER_FACTOR = 1.5
KIND_FACTOR = 3.0
GRADIENT_FLOOR = 1e-7  # In fp32, relative: what is nearer than that is near enough.
# Of the error of a tensor's gradient: an element below that has no direction but rounding's, and
# AdamW makes as much of it as of any other. One such element of 72 was 97 % of a norm's error.
NOISE_FACTOR = 4.0
SETTLED_SHARE = 0.8  # Of all elements, at least.
# The same in fp32, where such elements are few: the one in a thousand, and at least one, that
# differs most is left out. One of 5,376 was all of an error of 1.5e-4.
UNSETTLED_SHARE = 1e-3
WEIGHT_TOLERANCE = 1e-4  # Relative L2 of what 20 AdamW steps changed.
SILENT_SHARE = 1e-9  # A tensor with less of the global gradient norm has no direction to learn.
SAME_LOSS_TOLERANCE = 1e-7  # Relative, fp32: of the same rows, cut or packed otherwise,
SAME_GRADIENT_TOLERANCE = 2.5e-6  # and at most that, where transformers' error would allow more.


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


def silent_tensors(gradients):
    """Names of tensors whose gradient is nothing but rounding."""
    limit = SILENT_SHARE * global_norm(gradients)
    return {key for key, g in gradients.items() if np.linalg.norm(g) < limit}


def kinds_of(keys):
    """{key without its layer's number: keys}. The errors of two runs in one small tensor are two
    draws, whose ratio is mostly chance; over the layers it is less."""
    kinds = {}
    for key in sorted(keys):
        # Of T5 a block is a layer, and its "layers" are the halves of one.
        kind = re.sub(r"\b(block|layers?)\.\d+\.", r"\1.*.", key, count=1)
        kinds.setdefault(kind, []).append(key)
    return kinds


def gradients_differ(ours, theirs, truth, floor=GRADIENT_FLOOR, silence=None):
    """Gradients are no farther from the truth than theirs by more than the factors, or within
    floor. Silent tensors have no relative error: theirs may not become loud, above a share of all
    (`silence`, the floor if it is not given)."""
    found = keys_differ(ours, truth)
    if found:
        return found
    silent, whole = silent_tensors(truth), global_norm(truth)
    ratios = []
    for kind, keys in kinds_of(set(truth) - silent).items():
        gap, own = (rms([distance(g[key], truth[key]) for key in keys]) for g in (ours, theirs))
        if not gap <= max(KIND_FACTOR * own, floor):
            found.append(f"gradient of {kind}: {gap:.3g} from float64, {KIND_FACTOR} x {own:.3g}")
        if gap > floor:
            ratios.append(gap / max(own, floor, np.finfo(np.float64).tiny))
    mean = geometric_mean(ratios) if ratios else 0.0
    if not mean <= TOGETHER_FACTOR:
        found.append(f"gradients: {mean:.3g} times as far from float64, limit {TOGETHER_FACTOR}")
    for key in sorted(silent):
        gap, own = (np.linalg.norm(g[key]) / whole if whole else 0.0 for g in (ours, theirs))
        if not gap <= max(KIND_FACTOR * own, floor if silence is None else silence):
            found.append(f"gradient of {key}: {gap:.3g} of all, and in float64 none")
    return found


def gradients_differ_bf16(ours, theirs, truth, silence=None):
    """The same in bf16, where no error is small enough to be let pass."""
    return gradients_differ(ours, theirs, truth, floor=0.0, silence=silence)


def settled_distance(ours, reference):
    """Relative L2 distance of two arrays, without the elements that differ most."""
    gaps = np.sort(np.abs(ours - reference).ravel())
    kept = gaps[: gaps.size - max(1, int(UNSETTLED_SHARE * gaps.size))] if gaps.size > 1 else gaps
    norm = np.linalg.norm(reference)
    return np.linalg.norm(kept) / norm if norm else (np.inf if kept.any() else 0.0)


def weights_differ(ours, theirs, truth, left_out=frozenset()):
    """Learned weights, relative to what the steps changed: within tolerance of the truth, or no
    farther from it than theirs by more than the factor. `left_out`: names not compared."""

    def distance_of(run, key):
        start = np.asarray(theirs.initial[key], np.float64)
        return settled_distance(run.weights[key] - start, truth.weights[key] - start)

    found = keys_differ(ours.weights, truth.weights)
    for kind, keys in {} if found else kinds_of(set(truth.weights) - set(left_out)).items():
        gap, own = (rms([distance_of(run, key) for key in keys]) for run in (ours, theirs))
        limit = max(KIND_FACTOR * own, WEIGHT_TOLERANCE)
        if not gap <= limit:
            found.append(f"{kind} after training: {gap:.3g} of its change, limit {limit:.3g}")
    return found


def losses_are_farther(ours, ways, truth, factor=TOGETHER_FACTOR):
    """The losses of all steps together are at most `factor` times as far from the truth as those of
    the farthest of their `ways`."""
    if not truth or len(ours) != len(truth):
        return [f"{len(ours)} losses, not {len(truth)}"]
    gap, *own = (rms(np.subtract(losses, truth)) for losses in (ours, *ways))
    within = gap <= factor * max(own)
    return [] if within else [f"losses: {gap:.3g} from float64, {factor} x {max(own):.3g}"]


def runs_are_farther(runs):
    """Of several runs [(ours, ways, truth)] that differ in their seeds alone, losses and learned
    weights: the ratio of one is a draw, which was 0.4 to 1.9 for the losses of one model on one
    processor. A geometric mean over the runs is at most one factor for the losses, and for all
    kinds of tensors together; each run's losses, and each kind of tensor, a larger one."""
    losses, kinds = [], {}
    for ours, ways, truth in runs:
        found = keys_differ(ours.weights, truth.weights) + unsettled(ways, truth)
        if found or not truth.losses or len(ours.losses) != len(truth.losses):
            return found or [f"{len(ours.losses)} losses, not {len(truth.losses)}"]
        gap, *own = (rms(np.subtract(run.losses, truth.losses)) for run in (ours, *ways))
        losses.append(gap / max(own))
        for kind, (gap, own) in change_gaps(ours, ways, truth).items():
            kinds.setdefault(kind, []).append(gap / own)
    means = {kind: geometric_mean(ratios) for kind, ratios in kinds.items()}
    limits = {
        "losses": (geometric_mean(losses), TOGETHER_FACTOR),
        "losses of a run": (max(losses, default=np.inf), KIND_FACTOR),
        "weights after training": (geometric_mean(means.values()), TOGETHER_FACTOR),
    }
    limits |= {f"{kind} after training": (mean, KIND_FACTOR) for kind, mean in means.items()}
    return [
        f"{what}: {ratio:.3g} times as far from float64, limit {limit}"
        for what, (ratio, limit) in limits.items()
        if not ratio <= limit
    ]


def geometric_mean(ratios):
    """Infinite, of none."""
    return float(np.exp(np.mean(np.log(list(ratios))))) if ratios else np.inf


def settled(theirs, truth, factor=NOISE_FACTOR):
    """Per tensor, which elements of the first gradient are that many times their error."""
    return {key: np.abs(g) >= factor * rms(theirs[key] - g) for key, g in truth.items() if g.any()}


def unsettled(ways, truth):
    """Too few elements of the first gradient have a direction."""
    seen = settled(ways[0].gradients, truth.gradients)
    share = sum(np.sum(mask) for mask in seen.values()) / sum(mask.size for mask in seen.values())
    few = share < SETTLED_SHARE
    return [f"only {share:.0%} of the elements have a direction"] if few else []


def change_gaps(ours, ways, truth):
    """{kind of tensor: how far its settled elements are from the truth after training, ours and
    those of the farthest of their ways}."""
    seen, gaps = settled(ways[0].gradients, truth.gradients), {}
    for kind, keys in kinds_of(seen).items():
        gap, *own = (
            rms(np.concatenate([(run.weights[k] - truth.weights[k])[seen[k]] for k in keys]))
            for run in (ours, *ways)
        )
        gaps[kind] = gap, max(own)
    return gaps


def changes_differ(ours, ways, truth, factor=TOGETHER_FACTOR):
    """What training changed of the settled elements is, kind by kind, at most `factor` times as far
    from the truth as the farthest of their `ways`."""
    found = keys_differ(ours.weights, truth.weights) + unsettled(ways, truth)
    for kind, (gap, own) in {} if found else change_gaps(ours, ways, truth).items():
        if not gap <= factor * own:
            found.append(f"{kind} after training: off by {gap:.3g}, {factor} x {own:.3g}")
    return found


def same_gradients(ours, other, theirs, truth):
    """Two of our ways to the same gradient: no farther apart than either may be from float64.
    (Products of another number of rows add in another order.)"""
    found = keys_differ(ours, other)
    loud = set() if found else set(other) - silent_tensors(truth)
    for kind, keys in kinds_of(loud).items():
        gap = rms([distance(ours[key], other[key]) for key in keys])
        own = rms([distance(theirs[key], truth[key]) for key in keys])
        limit = min(max(KIND_FACTOR * own, GRADIENT_FLOOR), SAME_GRADIENT_TOLERANCE)
        if not gap <= limit:
            found.append(f"{kind}: {gap:.3g} apart, limit {limit:.3g}")
    return found
