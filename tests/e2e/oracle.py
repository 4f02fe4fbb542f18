"""What transformers and peft say of a job's data: the loss per trained token, one row at a time."""

import torch

from tests.harness import assignments, datasets
from tests.parity import reference


def mean_loss(model, rows):
    """Loss per trained token over rows, one at a time."""
    trained = sum(sum(weights) for _, weights in rows)
    model.eval()
    with torch.no_grad():
        return sum(reference.batch_loss(model, [row], trained).item() for row in rows)


def rows_of(daemon, name):
    """(training rows, evaluation rows) that a job's first attempt was given."""
    text = assignments.read(daemon.attempt(name))
    folders = [assignments.field(text, f"{data}_data") for data in ("train", "eval")]
    return tuple(datasets.read_prepared(folder) if folder else [] for folder in folders)
