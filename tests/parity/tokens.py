"""The log-probability of every token of the vocabulary after a prompt, by the worker and by peft.

The worker never forms logits, but the loss of a row with one trained token is the negative log of
that token's probability. With a learning rate of zero, a step per row gives them all; they are the
logits but for the constant that a softmax does not see.
"""

import numpy as np
import torch

from tests.harness import datasets, models
from tests.harness.binaries import probe_binary
from tests.parity import cases
from tests.parity.probe import Request, probe

PROMPT_TOKENS = 40


def workers_log_probabilities(prepared, prompt, folder):
    """One per token, from the losses of snug-probe."""
    vocabulary = prepared.case.shape.vocabulary
    weights = [0.0] * len(prompt) + [1.0]
    rows = [(prompt + [token], weights) for token in range(vocabulary)]
    spec = cases.job_spec(
        prepared,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=1,
        learning_rate=0.0,
        weight_decay=0.0,
        max_steps=vocabulary,
    )
    data = datasets.write_prepared(rows, folder / "data")
    request = Request(prepared.model, data, spec, folder / "output", prepared.adapter)
    request.steps = vocabulary
    probed = probe(probe_binary(), request)
    found = np.full(vocabulary, np.nan)
    for step, loss in zip(probed.rows, probed.losses):
        found[step[0][0]] = -loss
    return found


def both_log_probabilities(prepared, folder):
    """(the worker's, those of peft and transformers) of a prepared case's model and adapter."""
    ((prompt, _),) = datasets.random_rows(5, [PROMPT_TOKENS], prepared.case.shape.vocabulary)
    ours = workers_log_probabilities(prepared, prompt, folder)
    model = models.load_model(prepared.model, torch.float32, prepared.adapter)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt])).logits[0, -1]
    return ours, torch.log_softmax(logits.double(), -1).numpy()
