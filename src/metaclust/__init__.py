"""metaclust learns how to cluster from known categories, and then finds new ones in unlabelled data."""

from metaclust.augmentation import ImageAugmentation
from metaclust.checkpoint import CheckpointError, load_model, save_model
from metaclust.data import Dataset, load_dataset
from metaclust.devices import choose_device
from metaclust.episodes import Batch, Split, Task, TaskSampler, collate, split_categories
from metaclust.evaluation import Evaluation, evaluate
from metaclust.mixture import Posterior, Statistics, expectation_maximization, variational_bayes
from metaclust.model import ClusteringModel, ModelConfig
from metaclust.objectives import prototypical_loss, soft_ari
from metaclust.training import TrainingConfig, train

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "CheckpointError",
    "ClusteringModel",
    "Dataset",
    "Evaluation",
    "ImageAugmentation",
    "ModelConfig",
    "Posterior",
    "Split",
    "Statistics",
    "Task",
    "TaskSampler",
    "TrainingConfig",
    "choose_device",
    "collate",
    "evaluate",
    "expectation_maximization",
    "load_dataset",
    "load_model",
    "prototypical_loss",
    "save_model",
    "soft_ari",
    "split_categories",
    "train",
    "variational_bayes",
]
