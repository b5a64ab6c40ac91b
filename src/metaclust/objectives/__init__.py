"""Training objectives: the continuous adjusted Rand index, the prototypical loss, and the losses of baselines."""
