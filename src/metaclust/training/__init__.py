"""Learning to cluster: tasks, losses, the loop, the recipe of the estimator, and runs on disk."""
