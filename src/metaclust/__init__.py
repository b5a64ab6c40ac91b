"""metaclust learns how to cluster from known categories, and then finds new ones in unlabelled data."""

from typing import TYPE_CHECKING

from metaclust.lazy import lazy_names

if TYPE_CHECKING:
    from metaclust.augmentation import ImageAugmentation
    from metaclust.checkpoint import CheckpointError, load_model, save_model
    from metaclust.clustering import Clustering
    from metaclust.data import (
        DataError,
        Dataset,
        DataWarning,
        Preparation,
        Rows,
        WordRules,
        describe_preparation,
        fit_preparation,
        load_dataset,
        preparation_from,
        read_data,
        rows_from_array,
    )
    from metaclust.devices import choose_device
    from metaclust.episodes import Batch, Split, Task, TaskSampler, collate, split_categories
    from metaclust.estimator import MetaClusterer
    from metaclust.evaluation import Evaluation, evaluate
    from metaclust.infinite_mixture import InfiniteGaussianMixture
    from metaclust.mixture import Posterior, Prior, Statistics, expectation_maximization, variational_bayes
    from metaclust.model import ClusteringModel
    from metaclust.model_config import ModelConfig
    from metaclust.objectives import prototypical_loss, soft_ari
    from metaclust.processes import process_group
    from metaclust.training import TrainingConfig, train

__version__ = "0.1.0"

WHERE = {
    "metaclust.augmentation": ("ImageAugmentation",),
    "metaclust.checkpoint": (
        "CheckpointError",
        "load_model",
        "save_model",
    ),
    "metaclust.clustering": ("Clustering",),
    "metaclust.data": (
        "DataError",
        "DataWarning",
        "Dataset",
        "Preparation",
        "Rows",
        "WordRules",
        "describe_preparation",
        "fit_preparation",
        "load_dataset",
        "preparation_from",
        "read_data",
        "rows_from_array",
    ),
    "metaclust.devices": ("choose_device",),
    "metaclust.episodes": (
        "Batch",
        "Split",
        "Task",
        "TaskSampler",
        "collate",
        "split_categories",
    ),
    "metaclust.estimator": ("MetaClusterer",),
    "metaclust.evaluation": (
        "Evaluation",
        "evaluate",
    ),
    "metaclust.infinite_mixture": ("InfiniteGaussianMixture",),
    "metaclust.mixture": (
        "Posterior",
        "Prior",
        "Statistics",
        "expectation_maximization",
        "variational_bayes",
    ),
    "metaclust.model": ("ClusteringModel",),
    "metaclust.model_config": ("ModelConfig",),
    "metaclust.objectives": (
        "prototypical_loss",
        "soft_ari",
    ),
    "metaclust.processes": ("process_group",),
    "metaclust.training": (
        "TrainingConfig",
        "train",
    ),
}
"""The public names by module."""

__all__ = [
    "Batch",
    "CheckpointError",
    "Clustering",
    "ClusteringModel",
    "DataError",
    "DataWarning",
    "Dataset",
    "Evaluation",
    "ImageAugmentation",
    "InfiniteGaussianMixture",
    "MetaClusterer",
    "ModelConfig",
    "Posterior",
    "Preparation",
    "Prior",
    "Rows",
    "Split",
    "Statistics",
    "Task",
    "TaskSampler",
    "TrainingConfig",
    "WordRules",
    "choose_device",
    "collate",
    "describe_preparation",
    "evaluate",
    "expectation_maximization",
    "fit_preparation",
    "load_dataset",
    "load_model",
    "preparation_from",
    "process_group",
    "prototypical_loss",
    "read_data",
    "rows_from_array",
    "save_model",
    "soft_ari",
    "split_categories",
    "train",
    "variational_bayes",
]

__getattr__, __dir__ = lazy_names(__name__, WHERE)
