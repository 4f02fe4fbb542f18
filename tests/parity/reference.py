"""The oracle: an optimizer loop of a user of transformers and peft, in plain torch.

Loss: cross-entropy over the trained tokens, divided by the trained tokens of the whole
optimizer step. AdamW decays all but norm weights; the learning rate follows transformers'
get_scheduler. Everything runs in the model's own dtype; `exact` turns a model into one that
computes in float64 throughout, which transformers' own .double() does not (norms, rotary tables
and loss stay in fp32 there).
"""

import dataclasses
import math
import types

import torch
from transformers import get_scheduler


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


@dataclasses.dataclass
class Trained:
    """What a run of the loop gave; tensors by the key they have in Snug's files."""

    losses: list
    grad_norms: list
    gradients: dict
    initial: dict
    weights: dict


def exact_frequencies(config):
    """Inverse rotary frequencies in float64, from the formulas and not from transformers' code."""
    rope = config.rope_parameters
    width = config.head_dim
    exponents = torch.arange(0, width, 2, dtype=torch.float64) / width
    frequencies = rope["rope_theta"] ** -exponents
    if rope["rope_type"] == "linear":
        return frequencies / rope["factor"]
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


def _exact_norm(self, x):
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def _exact_rotary(self, x, position_ids):
    angles = position_ids[..., None].double() * exact_frequencies(self.config)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def exact(model):
    """The same model in float64 throughout."""
    model = model.double()
    for module in model.modules():
        name = type(module).__name__
        if name == "LlamaRMSNorm":
            module.forward = types.MethodType(_exact_norm, module)
        elif name == "LlamaRotaryEmbedding":
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


def batch_loss(model, rows, divisor):
    """Summed cross-entropy of a padded micro-batch over the divisor; fp32 at least, as transformers
    does it."""
    ids, labels, mask = pad(rows)
    logits = model(input_ids=ids, attention_mask=mask).logits
    logits = logits if logits.dtype == torch.float64 else logits.float()
    target = torch.nn.functional.pad(labels, (0, 1), value=-100)[:, 1:].reshape(-1)
    total = torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), target, ignore_index=-100, reduction="sum"
    )
    return total / divisor


def key_of(name):
    """The key in our files of a torch parameter: PEFT's without the adapter's name."""
    for part in (".lora_A", ".lora_B"):
        name = name.replace(f"{part}.default.", f"{part}.")
    return name.replace(".modules_to_save.default.", ".")


def trainable(model):
    """Trained parameters by key."""
    return {key_of(n): p for n, p in model.named_parameters() if p.requires_grad}


def snapshot(tensors):
    """Copies as float64 numpy arrays, so that comparisons add no rounding of their own."""
    return {key: t.detach().double().numpy().copy() for key, t in tensors.items()}


def accumulate(model, micro_batches):
    """Adds the gradients of one optimizer step; gives its loss."""
    divisor = sum(sum(weights) for rows in micro_batches for _, weights in rows)
    loss = 0.0
    for rows in micro_batches:
        part = batch_loss(model, rows, divisor)
        part.backward()
        loss += part.item()
    return loss


def _optimizer(parameters, settings):
    groups = [
        {"params": [p for k, p in parameters.items() if "norm" not in k]},
        {"params": [p for k, p in parameters.items() if "norm" in k], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(
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
    """fp32 copies for the optimizer to change."""
    return {key: torch.nn.Parameter(p.detach().float()) for key, p in parameters.items()}


def train(model, steps, settings, masters=False):
    """Runs the loop. `steps`: per step a list of micro-batches, each a list of rows. `masters`: the
    optimizer changes fp32 copies, of which the model's weights are rounded after each step."""
    parameters = trainable(model)
    changed = masters_of(parameters) if masters else parameters
    optimizer, schedule = _optimizer(changed, settings)
    initial, gradients, losses, norms = snapshot(parameters), None, [], []
    for micro_batches in steps:
        optimizer.zero_grad()
        losses.append(accumulate(model, micro_batches))
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
        masters[key].grad, p.grad = p.grad.float(), None


def _round(masters, parameters):
    with torch.no_grad():
        for key, master in masters.items():
            parameters[key].copy_(master)
