"""The formats that metrics of jobs are exported to, a module each, each through its own library.

A writer is a function (directory, runs): it writes each run, and gives the folder of each. What it
needs is an extra of the package: snug-client[tensorboard].
"""

from snug_client.metric_writers.mlflow import write_mlflow
from snug_client.metric_writers.tensorboard import write_tensorboard
from snug_client.metric_writers.wandb import write_wandb

WRITERS = {"mlflow": write_mlflow, "tensorboard": write_tensorboard, "wandb": write_wandb}
