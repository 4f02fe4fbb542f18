"""The oracle: an optimizer loop of a user of transformers and peft, in plain torch.

Loss: cross-entropy over the trained tokens, divided by the trained tokens of the whole
optimizer step. AdamW decays all but norm weights and biases; the learning rate follows
transformers' get_scheduler. Everything runs in the model's own dtype; `exact` turns a model into
one that computes in float64 throughout, which transformers' own .double() does not (norms, rotary
tables, softmax and loss stay in fp32 there).
"""

import dataclasses
import functools
import math
import types

import torch
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    PreTrainedConfig,
    get_scheduler,
)
from transformers.masking_utils import eager_mask


@dataclasses.dataclass
class Settings:
    """The part of a job file that shapes the loop. Field names as in the job file."""

    steps: int = 20
    learning_rate: float = 1e-3
    lr_scheduler_type: str = "cosine"
    warmup_steps: int = 3
    max_steps: int = 20
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8
    label_smoothing_factor: float = 0.0
    documents: bool = False  # Rows are documents with a class.
    tagged: bool = False  # Rows are tokens with a class each.
    targets: bool = False  # Rows are targets with a source.
    images: bool = False  # Rows are images with a class.


@dataclasses.dataclass
class Trained:
    """What a run of the loop gave; tensors by the key they have in Snug's files."""

    losses: list
    grad_norms: list
    gradients: dict
    initial: dict
    weights: dict


def exact_frequencies(config, layer_type=None):
    """Inverse rotary frequencies in float64, from the formulas and not from transformers' code."""
    rope = config.rope_parameters[layer_type] if layer_type else config.rope_parameters
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    width = int(width * rope.get("partial_rotary_factor", 1.0))
    exponents = torch.arange(0, width, 2, dtype=torch.float64) / width
    frequencies = rope["rope_theta"] ** -exponents
    if rope["rope_type"] == "linear":
        return frequencies / rope["factor"]
    if rope["rope_type"] == "yarn":
        return _yarn(frequencies, rope)
    if rope["rope_type"] != "llama3":
        return frequencies
    old, low, high = (
        rope["original_max_position_embeddings"],
        rope["low_freq_factor"],
        rope["high_freq_factor"],
    )
    turns = old * frequencies / (2 * math.pi)
    smooth = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return frequencies * ((1 - smooth) / rope["factor"] + smooth)


def _yarn(frequencies, rope):
    """Peng et al. 2023, section 3.2: a ramp over the pairs, between those that turn beta_fast and
    beta_slow times within the original length, at whole pairs."""
    pairs, base = len(frequencies), math.log(rope["rope_theta"])

    def pair_that_turns(times):
        length = rope["original_max_position_embeddings"]
        return pairs * math.log(length / (times * 2 * math.pi)) / base

    low = max(math.floor(pair_that_turns(rope["beta_fast"])), 0)
    high = min(math.ceil(pair_that_turns(rope["beta_slow"])), 2 * pairs - 1)
    share = 1 - ((torch.arange(pairs, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
    return frequencies * ((1 - share) / rope["factor"] + share)


def exact_attention_factor(config, layer_type=None):
    """Of cosines and sines; section 3.4 of the same."""
    rope = config.rope_parameters[layer_type] if layer_type else config.rope_parameters
    if rope["rope_type"] != "yarn":
        return 1.0
    return rope.get("attention_factor") or 0.1 * math.log(rope["factor"]) + 1.0


def _exact_norm(self, x):
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def _exact_t5_norm(self, x):
    variance = x.pow(2).mean(-1, keepdim=True)
    return self.weight * (x * torch.rsqrt(variance + self.variance_epsilon))


def _exact_gemma_norm(self, x):
    return (1.0 + self.weight) * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


def _exact_rotary(self, x, position_ids, layer_type=None):
    angles = position_ids[..., None].double() * exact_frequencies(self.config, layer_type)
    angles = torch.cat((angles, angles), dim=-1)
    factor = exact_attention_factor(self.config, layer_type)
    return factor * angles.cos().to(x.dtype), factor * angles.sin().to(x.dtype)


def _exact_attention(_module, query, key, value, attention_mask=None, **settings):
    """Scores and all, in the operands' dtype; transformers' eager attention has its softmax in
    fp32."""
    scaling, softcap = settings["scaling"], settings.get("softcap")
    groups = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if settings.get("position_bias") is not None:
        scores = scores + settings["position_bias"]
    if attention_mask is not None:
        scores = scores + attention_mask
    out = torch.matmul(torch.softmax(scores, dim=-1), value)
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register("exact", _exact_attention)
AttentionMaskInterface.register("exact", eager_mask)


def exact(model):
    """The same model in float64 throughout. A forward that a test has replaced stays."""
    model = model.double()
    for module in model.modules():
        name = type(module).__name__
        if isinstance(getattr(module, "config", None), PreTrainedConfig):
            module.config._attn_implementation = "exact"
        if "forward" in vars(module):
            continue
        if name.endswith("RMSNorm"):
            gemma = name.startswith("Gemma")
            module.forward = types.MethodType(_exact_gemma_norm if gemma else _exact_norm, module)
        elif name == "T5LayerNorm":
            module.forward = types.MethodType(_exact_t5_norm, module)
        elif name.endswith("RotaryEmbedding"):
            module.forward = types.MethodType(_exact_rotary, module)
    return model


def pad(rows):
    """Token ids, labels and attention mask of rows, padded to the right."""
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    labels = torch.full((len(rows), longest), -100)
    mask = torch.zeros(len(rows), longest, dtype=torch.long)
    for i, (row, weights) in enumerate(rows):
        row = torch.tensor(row)
        ids[i, : len(row)] = row
        labels[i, : len(row)] = torch.where(torch.tensor(weights) > 0, row, -100)
        mask[i, : len(row)] = 1
    return ids, labels, mask


def batch_loss(model, rows, divisor, smoothing=0.0):
    """Summed cross-entropy of a padded micro-batch over the divisor; fp32 at least, as transformers
    does it."""
    ids, labels, mask = pad(rows)
    logits = model(input_ids=ids, attention_mask=mask).logits
    logits = logits if logits.dtype == torch.float64 else logits.float()
    target = torch.nn.functional.pad(labels, (0, 1), value=-100)[:, 1:].reshape(-1)
    total = torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]),
        target,
        ignore_index=-100,
        reduction="sum",
        label_smoothing=smoothing,
    )
    return total / divisor


def _classes(logits, labels, smoothing=0.0):
    return torch.nn.functional.cross_entropy(
        logits, labels, reduction="none", label_smoothing=smoothing
    )


def _numbers(logits, labels):
    return (logits - labels.to(logits.dtype)).square().mean(-1)


def _several(logits, labels):
    labels = labels.to(logits.dtype)
    return torch.nn.functional.binary_cross_entropy_with_logits(
        logits, labels, reduction="none"
    ).mean(-1)


# Of a document, by problem_type.
LOSSES = {"regression": _numbers, "multi_label_classification": _several}


def document_loss(model, rows, divisor, smoothing=0.0):
    """The same of documents [(ids, label)] and their labels; padded with the token by which
    transformers knows where one ends."""
    pad_id = model.config.pad_token_id
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([ids + [pad_id] * (longest - len(ids)) for ids, _ in rows])
    mask = torch.tensor([[1] * len(ids) + [0] * (longest - len(ids)) for ids, _ in rows])
    labels = torch.tensor([label for _, label in rows])
    logits = model(input_ids=ids, attention_mask=mask).logits
    logits = logits if logits.dtype == torch.float64 else logits.float()
    of_classes = functools.partial(_classes, smoothing=smoothing)
    return LOSSES.get(model.config.problem_type, of_classes)(logits, labels).sum() / divisor


def tagged_loss(model, rows, divisor, smoothing=0.0):
    """The same of tokens with a class each [(ids, labels)], -100 for none."""
    longest = max(len(ids) for ids, _ in rows)

    def padded(filler, of):
        return torch.tensor([of(row) + [filler] * (longest - len(row[0])) for row in rows])

    ids = padded(model.config.pad_token_id, lambda row: row[0])
    mask = padded(0, lambda row: [1] * len(row[0]))
    labels = padded(-100, lambda row: row[1])
    logits = model(input_ids=ids, attention_mask=mask).logits
    logits = logits if logits.dtype == torch.float64 else logits.float()
    total = torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]),
        labels.reshape(-1),
        ignore_index=-100,
        reduction="sum",
        label_smoothing=smoothing,
    )
    return total / divisor


def target_loss(model, rows, divisor, smoothing=0.0):
    """The same of [(source ids, target ids, weights)], padded on the right; the decoder reads the
    target one token late."""
    pad_id = model.config.pad_token_id
    longest = max(len(source) for source, _, _ in rows)
    ids = torch.tensor([source + [pad_id] * (longest - len(source)) for source, _, _ in rows])
    mask = torch.tensor([[1] * len(s) + [0] * (longest - len(s)) for s, _, _ in rows])
    longest = max(len(target) for _, target, _ in rows)
    labels = torch.full((len(rows), longest), -100)
    read = torch.full((len(rows), longest), pad_id)
    for i, (_, target, weights) in enumerate(rows):
        target = torch.tensor(target)
        labels[i, : len(target)] = torch.where(torch.tensor(weights) > 0, target, -100)
        read[i, 1 : len(target)] = target[:-1]
    read[:, 0] = model.config.decoder_start_token_id
    logits = model(input_ids=ids, attention_mask=mask, decoder_input_ids=read).logits
    logits = logits if logits.dtype == torch.float64 else logits.float()
    total = torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]),
        labels.reshape(-1),
        reduction="sum",
        label_smoothing=smoothing,
    )
    return total / divisor


def image_loss(model, rows, divisor, smoothing=0.0):
    """The same of images with a class, or each class's share [(pixel values, label)]."""
    pixels = torch.stack([pixels for pixels, _ in rows]).to(model.dtype)
    labels = torch.stack([torch.as_tensor(label) for _, label in rows])
    logits = model(pixel_values=pixels).logits
    logits = logits if logits.dtype == torch.float64 else logits.float()
    labels = labels.to(logits.dtype) if labels.is_floating_point() else labels
    return _classes(logits, labels, smoothing).sum() / divisor


@dataclasses.dataclass(frozen=True)
class Objective:
    """`loss(model, rows, divisor)`, and `weight(row)`: of all rows the divisor."""

    loss: callable
    weight: callable

    def smoothed(self, smoothing):
        """The same with smoothed labels, as transformers' LabelSmoother has them."""
        return Objective(functools.partial(self.loss, smoothing=smoothing), self.weight)


TOKENS = Objective(batch_loss, lambda row: sum(row[1]))
DOCUMENTS = Objective(document_loss, lambda row: 1)
IMAGES = Objective(image_loss, lambda row: 1)
TAGGED = Objective(tagged_loss, lambda row: sum(label != -100 for label in row[1]))
TARGETS = Objective(target_loss, lambda row: sum(row[2]))


def key_of(name):
    """The key in our files of a torch parameter: PEFT's without the adapter's name."""
    for part in (".lora_A", ".lora_B"):
        name = name.replace(f"{part}.default.", f"{part}.")
    for part in (".lora_embedding_A", ".lora_embedding_B"):
        name = name.replace(f"{part}.default", part)
    return name.replace(".modules_to_save.default.", ".")


def trainable(model):
    """Trained parameters by key."""
    return {key_of(n): p for n, p in model.named_parameters() if p.requires_grad}


def snapshot(tensors):
    """Copies as float64 numpy arrays, so that comparisons add no rounding of their own."""
    return {key: t.detach().double().numpy().copy() for key, t in tensors.items()}


def accumulate(model, micro_batches, objective=TOKENS):
    """Adds the gradients of one optimizer step; gives its loss."""
    divisor = sum(objective.weight(row) for rows in micro_batches for row in rows)
    loss = 0.0
    for rows in micro_batches:
        part = objective.loss(model, rows, divisor)
        part.backward()
        loss += part.item()
    return loss


def _undecayed(key):
    """As transformers' Trainer has it."""
    return "norm" in key.lower() or "bias" in key


def _optimizer(parameters, settings, make):
    groups = [
        {"params": [p for k, p in parameters.items() if not _undecayed(k)]},
        {"params": [p for k, p in parameters.items() if _undecayed(k)], "weight_decay": 0.0},
    ]
    optimizer = make(
        [group for group in groups if group["params"]],
        lr=settings.learning_rate,
        betas=(settings.adam_beta1, settings.adam_beta2),
        eps=settings.adam_epsilon,
        weight_decay=settings.weight_decay,
    )
    schedule = get_scheduler(
        settings.lr_scheduler_type,
        optimizer,
        num_warmup_steps=settings.warmup_steps,
        num_training_steps=settings.max_steps,
    )
    return optimizer, schedule


def masters_of(parameters):
    """fp32 copies for the optimizer to change, of an exact model float64."""
    copies = {
        key: p.detach().to(torch.promote_types(p.dtype, torch.float32), copy=True)
        for key, p in parameters.items()
    }
    return {key: torch.nn.Parameter(copy) for key, copy in copies.items()}


def objective_of(settings):
    """What the rows are of."""
    chosen = {
        IMAGES: settings.images,
        TAGGED: settings.tagged,
        TARGETS: settings.targets,
        DOCUMENTS: settings.documents,
        TOKENS: True,
    }
    objective = next(each for each, holds in chosen.items() if holds)
    return objective.smoothed(settings.label_smoothing_factor)


def train(model, steps, settings, masters=False, make=torch.optim.AdamW):
    """Runs the loop. `steps`: per step a list of micro-batches, each a list of rows. `masters`: the
    optimizer changes wider copies, of which the model's weights are rounded to bf16 after each
    step, in an exact model too: what is left is the error of computing. `make`: the optimizer, of
    AdamW's arguments."""
    parameters = trainable(model)
    changed = masters_of(parameters) if masters else parameters
    optimizer, schedule = _optimizer(changed, settings, make)
    initial, gradients, losses, norms = snapshot(parameters), None, [], []
    for micro_batches in steps:
        optimizer.zero_grad()
        losses.append(accumulate(model, micro_batches, objective_of(settings)))
        if gradients is None:
            gradients = snapshot({key: p.grad for key, p in parameters.items()})
        if masters:
            _move_gradients(parameters, changed)
        limit = settings.max_grad_norm or math.inf
        norms.append(torch.nn.utils.clip_grad_norm_(changed.values(), limit).item())
        optimizer.step()
        schedule.step()
        if masters:
            _round(changed, parameters)
    return Trained(losses, norms, gradients, initial, snapshot(changed))


def _move_gradients(parameters, masters):
    for key, p in parameters.items():
        masters[key].grad, p.grad = p.grad.to(masters[key].dtype), None


def _round(masters, parameters):
    with torch.no_grad():
        for key, master in masters.items():
            parameters[key].copy_(master.to(torch.bfloat16))
