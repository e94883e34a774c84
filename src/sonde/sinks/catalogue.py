"""The sinks that can be asked for by name."""

from sonde.core.plugins import Door

SINKS = Door(
    group="sonde.sinks",
    kind="sink",
    builtins={
        "mlflow": "sonde.sinks.mlflow:MLflow",
        "tensorboard": "sonde.sinks.tensorboard:TensorBoard",
        "wandb": "sonde.sinks.wandb:WandB",
    },
    accepts=callable,
)
"""Each is called without arguments to make one."""
