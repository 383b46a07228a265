"""From a model to a bank: prior, simulator, executors, the run."""
