"""metaclust learns how to cluster from known categories, and then finds new ones in unlabelled data."""

from typing import TYPE_CHECKING

from metaclust._util.lazy import lazy_names

if TYPE_CHECKING:
    from metaclust._util.devices import choose_device
    from metaclust._util.distributed import process_group
    from metaclust._util.tensors import CheckpointError
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
        rows_from_frame,
    )
    from metaclust.estimator import MetaClusterer
    from metaclust.inference.result import Clustering
    from metaclust.mixture import Posterior, Prior, Statistics, expectation_maximization, variational_bayes
    from metaclust.mixture.estimator import InfiniteGaussianMixture
    from metaclust.model.checkpoint import load_model, save_model
    from metaclust.model.clustering_model import ClusteringModel
    from metaclust.model.config import ModelConfig
    from metaclust.objectives.ari import soft_ari
    from metaclust.objectives.prototypical import prototypical_loss
    from metaclust.training.augmentation import ImageAugmentation
    from metaclust.training.batches import Batch, Task, collate
    from metaclust.training.config import TrainingConfig
    from metaclust.training.episodes import Split, TaskSampler, split_categories
    from metaclust.training.evaluation import Evaluation, evaluate
    from metaclust.training.loop import train

__version__ = "0.2.0.dev0"

WHERE = {
    "metaclust.training.augmentation": ("ImageAugmentation",),
    "metaclust._util.tensors": ("CheckpointError",),
    "metaclust.model.checkpoint": ("load_model", "save_model"),
    "metaclust.inference.result": ("Clustering",),
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
        "rows_from_frame",
    ),
    "metaclust._util.devices": ("choose_device",),
    "metaclust.training.batches": ("Batch", "Task", "collate"),
    "metaclust.training.episodes": ("Split", "TaskSampler", "split_categories"),
    "metaclust.estimator": ("MetaClusterer",),
    "metaclust.training.evaluation": ("Evaluation", "evaluate"),
    "metaclust.mixture.estimator": ("InfiniteGaussianMixture",),
    "metaclust.mixture": ("Posterior", "Prior", "Statistics", "expectation_maximization", "variational_bayes"),
    "metaclust.model.clustering_model": ("ClusteringModel",),
    "metaclust.model.config": ("ModelConfig",),
    "metaclust.objectives.ari": ("soft_ari",),
    "metaclust.objectives.prototypical": ("prototypical_loss",),
    "metaclust._util.distributed": ("process_group",),
    "metaclust.training.config": ("TrainingConfig",),
    "metaclust.training.loop": ("train",),
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
    "rows_from_frame",
    "save_model",
    "soft_ari",
    "split_categories",
    "train",
    "variational_bayes",
]

__getattr__, __dir__ = lazy_names(__name__, WHERE)
