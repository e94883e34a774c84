"""Other people's loggers: TensorBoard, Weights & Biases, MLflow, and whoever comes through the plug-in door."""
