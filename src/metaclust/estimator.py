"""MetaClusterer: the method as a scikit-learn estimator."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.metrics import adjusted_rand_score
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from torch import Tensor

from metaclust._util.devices import choose_device
from metaclust._util.distributed import current
from metaclust._util.progress import Waiting
from metaclust._util.targets import check_new_folder
from metaclust._util.tensors import refusing, versions
from metaclust.data.inputs import as_rows, is_numeric_matrix, is_table, with_table
from metaclust.data.labels import labelled_rows, read_labels, written_labels
from metaclust.data.preparation.embeddings import EmbeddingPreparation
from metaclust.data.preparation.image_embeddings import ImageModelPreparation
from metaclust.data.preparation.prepare import (
    ImagesAs,
    ImageScaling,
    Preparation,
    Scaling,
    SoundsAs,
    TextAs,
    fit_preparation,
)
from metaclust.data.preparation.sounds import SpectrogramPreparation
from metaclust.data.preparation.table import TablePreparation
from metaclust.data.preparation.tuned import TunedWeights
from metaclust.data.preparation.vocabulary import texts_of
from metaclust.data.rows import DataError, Rows
from metaclust.inference.calibrate import CHOICE_TASKS
from metaclust.inference.cluster import cluster_array, representations, warn_if_all_are_used
from metaclust.inference.edits import Given
from metaclust.inference.numbers import shifted
from metaclust.inference.owned import fixed
from metaclust.inference.pipeline import Search
from metaclust.inference.result import Clustering, Start
from metaclust.inference.settle import Known, with_new_names
from metaclust.inference.tally import Tally
from metaclust.model.checkpoint import Description, load_model, save_model
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.config import Preset
from metaclust.training.discovery import PartlyLabelled, discover, discovers
from metaclust.training.plan import check_applicable, recipe_for
from metaclust.training.recipe import learn
from metaclust.training.remarks import remarks_on, warn_if_little_was_learned
from metaclust.training.saved import SavedEstimator
from metaclust.training.settings import check_max_clusters, check_settings

EMBEDS: dict[str, tuple[Any, str]] = {
    "embedding_model": (EmbeddingPreparation, "sentence embeddings"),
    "image_model": (ImageModelPreparation, "image embeddings"),
}
"""By argument: the preparations whose model it names, and what these return."""


class MetaClusterer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Learn how to cluster from rows of known categories, then cluster rows of categories never seen.

    ``fit(X, y)`` takes arrays, data frames, sparse matrices, tensors, lists of strings or of images, or what
    ``read_data`` and ``load_dataset`` return. ``cluster(X)`` finds the clusters of new rows, and how many there are.

    Parameters
    ----------
    max_clusters : int or "auto", default="auto"
        The largest number of clusters; ``cluster`` can be given another one. With "auto" there may be as many as the
        rows allow; where the bound selects, at most 10. A sufficient number gives the same clusters as "auto".
    min_cluster_size : int, default=1
        Smaller clusters are dissolved: their rows join the next most probable cluster.
    restarts : int or None, default=None
        k-means++ starts for each number of clusters, besides the cuts of trees and the task network (None: none;
        where the bound selects, 1); with ``preset="paper"``, the number of all starts (None: 10).
    effective_rows : float, "auto" or None, default="auto"
        As how many rows a cluster counts, on average, when clusterings are compared. None counts every row: large
        clusters then fall apart, since no category is exactly Gaussian. "auto" is what clusters unseen categories best.
    confidence : float, default=0.5
        Confidence threshold: rows below it are marked unsure. They keep their label.
    pretrain_steps : int or None, default=None
        Steps of prototypical pretraining; None for 1000 (a free network), 600 (a residual one) or 300 (of images).
    steps : int or None, default=None
        Steps on the continuous ARI; None for 300 (a free network), 50 (a residual one of images) or 0 (a residual one
        of vectors and texts, which gains nothing by them).
    task_rows : tuple of (int, int), default=(5, 30)
        The range of the number of rows of each category in a training task.
    validation : float, default=0.2
        The share of the categories that is held out to choose the best weights; 0 for none.
    augment : bool, "auto" or "turn", default="auto"
        Small affine changes of training images; "auto" and True for images, False for none. "turn" also rotates and
        mirrors whole categories, which makes new ones: for characters and signs, not for photographs.
    scaling : {"auto", "standard", "none"}, default="auto"
        Scaling of the columns of vectors; "auto" is "none" for rows of unit length, such as embeddings.
    text : {"tfidf", "counts", "embeddings"}, default="tfidf"
        What texts become.
    embedding_model : str or None, default=None
        A sentence-transformers folder or name, for ``text="embeddings"``.
    images : {"pixels", "embeddings"}, default="pixels"
        What images become: learned from their pixels, or embeddings of ``image_model``, which photographs need.
    image_model : str or None, default=None
        The folder of a vision model that transformers loads, its name, or an .onnx file, for ``images="embeddings"``.
    image_scaling : {"auto", "imagenet", "symmetric", "unit", "raw"}, default="auto"
        How pixels are scaled for an .onnx file, which does not say: by the mean and deviation of ImageNet ("auto"), to
        -1 to 1, to 0 to 1, or not.
    sounds : {"statistics", "spectrograms", "embeddings"}, default="statistics"
        What sounds become: statistics of their cepstra, spectrograms, learned as images are, or embeddings of their
        spectrograms by ``image_model``.
    preset : {"default", "paper"}, default="default"
        Settings that train reliably, or the paper's. See ``ModelConfig`` and ``TrainingConfig``.
    encoder : {"auto", "network", "residual", "tuned"}, default="auto"
        A free network, or one that starts as the principal components, for embeddings; of images, the paper's
        convolutions or a residual network. "tuned" also trains the embedding model of texts itself. "auto" takes, for
        vectors and texts, what separates held-out categories best, and for images a residual network; ``decisions_``
        says which, and why.
    effort : {"fast", "balanced", "best"}, default="fast"
        How much time the training may take. "fast" leaves the embedding model of texts as it is; "balanced" tries 80
        steps of its training, and "best" 160, and goes on with that if it separates unseen categories better. For 8,000
        short texts that takes minutes on two cores, in place of one.
    choose : {"auto", "learned", "bound"}, default="auto"
        Select among clusterings by a selector that was learned from categories the encoder had not seen, or by the
        evidence lower bound. "auto" is "learned" where there are enough categories.
    choice_tasks : int, default=300
        Tasks that the selector is learned from.
    representation : int or None, default=None
        The number of columns of the representations; None for the preset's.
    dropout : float or None, default=None
        Dropout of the networks; None for 0 with images and 0.1 with other rows.
    components : str, default="spherical"
        The family of the mixture's components, see ``metaclust.variational_bayes``.
    seed : int, default=0
        Random seed.
    device : str, default="auto"
        "cpu", "cuda" or "mps"; "auto" is a GPU where there is one.
    progress : bool, default=True
        Show progress.

    Attributes
    ----------
    model_ : ClusteringModel
        The trained networks.
    categories_ : list of str
        The categories it was trained on.
    decisions_ : list of str
        What was decided during training, and why.
    run_ : Run
        How the training went; not kept in files.
    discovered_ : Clustering
        The categories of all rows of the training, where many were unlabelled; not kept in files, but by its own
        ``save``.
    discovered_categories_ : list of str or None
        The name of each of these clusters, None for a new category.

    Examples
    --------
    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> y = np.repeat(np.arange(12), 20)
    >>> X = 9 * generator.normal(size=(12, 4))[y] + generator.normal(size=(240, 4))
    >>> model = MetaClusterer(pretrain_steps=20, steps=10, choice_tasks=20, progress=False)
    >>> result = model.fit(X[y < 9], y[y < 9]).cluster(X[y >= 9])
    >>> result.n_clusters
    3
    """

    def __init__(
        self,
        max_clusters: int | Literal["auto"] = "auto",
        *,
        min_cluster_size: int = 1,
        restarts: int | None = None,
        effective_rows: float | Literal["auto"] | None = "auto",
        confidence: float = 0.5,
        pretrain_steps: int | None = None,
        steps: int | None = None,
        task_rows: tuple[int, int] = (5, 30),
        validation: float = 0.2,
        augment: bool | Literal["auto", "turn"] = "auto",
        scaling: Scaling = "auto",
        text: TextAs = "tfidf",
        embedding_model: str | None = None,
        images: ImagesAs = "pixels",
        image_model: str | None = None,
        image_scaling: ImageScaling = "auto",
        sounds: SoundsAs = "statistics",
        preset: Preset = "default",
        encoder: str = "auto",
        effort: Literal["fast", "balanced", "best"] = "fast",
        choose: Literal["auto", "learned", "bound"] = "auto",
        choice_tasks: int = CHOICE_TASKS,
        representation: int | None = None,
        dropout: float | None = None,
        components: str = "spherical",
        seed: int = 0,
        device: str = "auto",
        progress: bool = True,
    ) -> None:
        self.max_clusters = max_clusters
        self.min_cluster_size = min_cluster_size
        self.restarts = restarts
        self.effective_rows = effective_rows
        self.confidence = confidence
        self.pretrain_steps = pretrain_steps
        self.steps = steps
        self.task_rows = task_rows
        self.validation = validation
        self.augment = augment
        self.scaling = scaling
        self.text = text
        self.embedding_model = embedding_model
        self.images = images
        self.image_model = image_model
        self.image_scaling = image_scaling
        self.sounds = sounds
        self.preset = preset
        self.encoder = encoder
        self.effort = effort
        self.choose = choose
        self.choice_tasks = choice_tasks
        self.representation = representation
        self.dropout = dropout
        self.components = components
        self.seed = seed
        self.device = device
        self.progress = progress

    def fit(
        self,
        X: Any,  # noqa: N803 - scikit-learn's name
        y: Any = None,
        *,
        folder: str | os.PathLike[str] | None = None,
        resume: bool = False,
        n_clusters: int | None = None,
    ) -> MetaClusterer:
        """Learn from rows ``X`` of the categories ``y``, which rows of ``read_data`` may bring along.

        Rows whose category is None, NaN, "" or, among whole numbers, -1 are unlabelled. Where at least as many
        embeddings (or texts, with ``text="embeddings"``) are unlabelled as are labelled, the encoder is trained by
        itself on all of them (the embedding model, too, with ``encoder="tuned"`` or more ``effort``), and their
        categories are found, known ones and new ones: ``discovered_`` has the cluster of each row, and its ``assign``
        that of further rows. ``n_clusters`` is the number of all categories, if it is known. Elsewhere unlabelled rows
        are left out, which ``decisions_`` says.

        Some of the categories are kept from training and choose the weights that cluster them best. With ``folder`` the
        run is kept there, and ``resume=True`` goes on with one that was interrupted.
        """
        self.check_settings()
        if folder is not None and current().main:
            check_new_folder(Path(folder))
        rows = self._rows(X, y, training=True)
        check_applicable(self.get_params(), rows)
        codes, names = (None, []) if rows.partial is None else read_labels(rows.partial, len(rows))
        if codes is not None and discovers(self.get_params(), rows, codes):
            return self._discover(rows, codes, names, n_clusters, None if folder is None else Path(folder), resume)
        if n_clusters is not None:
            raise ValueError(
                f"n_clusters={n_clusters!r}: it is for embeddings of which many are unlabelled, whose categories are "
                "found in training; omit it, and give max_clusters to cluster(...)"
            )
        rows, remarks = labelled_rows(rows)
        # What a file is read as was said where it was read.
        remarks += [f"X: {'; '.join(rows.notes)}"] if is_table(X) and rows.notes else []
        rows = rows.without_small_categories()
        preparation, rows = self._fit_preparation(rows)
        numbers, names = rows.numbered()
        shape = preparation.input_shape
        remarks += [*notes_on(preparation, rows), *remarks_on(rows, shape)]
        texts = (preparation.model, texts_of(rows)) if isinstance(preparation, EmbeddingPreparation) else None
        recipe = recipe_for(
            self.get_params(), preparation(rows), numbers, shape, rows.kind, folder=folder, resume=resume, texts=texts
        )
        learned = learn(recipe)
        self.model_, self.run_, self.decisions_ = learned.model, learned.run, [*remarks, *learned.decisions]
        if learned.tuned is not None and isinstance(preparation, EmbeddingPreparation):
            preparation = preparation.with_weights(learned.tuned)
            self.model_.hold_embedder(learned.tuned.tensors)
        self.preparation_ = preparation
        self.categories_ = names
        warn_if_little_was_learned(learned.run, rows, self.get_params(), len(names))
        return self

    def _discover(
        self,
        rows: Rows,
        codes: NDArray[np.int64],
        names: list[str],
        n_clusters: int | None,
        folder: Path | None,
        resume: bool,
    ) -> MetaClusterer:
        """Learn from labelled and unlabelled rows, and find the categories of all."""
        started = time.perf_counter()
        preparation, rows = self._fit_preparation(replace(rows, labels=None, partial=None))
        tunes = self.encoder == "tuned" or (self.encoder == "auto" and self.effort != "fast")
        texts = None
        if tunes and isinstance(preparation, EmbeddingPreparation):
            texts = preparation.model, texts_of(rows)
        found = discover(
            PartlyLabelled(
                cast(Tensor, preparation(rows)),
                codes,
                int(self.seed),
                choose_device(self.device),
                n_clusters,
                texts,
                folder=folder,
                resume=resume,
                progress=self.progress and current().main,
            )
        )
        self.model_, self.run_ = found.model, found.run
        self.decisions_ = [*notes_on(preparation, rows), *found.decisions]
        if found.tuned is not None and isinstance(preparation, EmbeddingPreparation):
            preparation = preparation.with_weights(found.tuned)
            self.model_.hold_embedder(found.tuned.tensors)
        self.preparation_, self.categories_ = preparation, names
        self.discovered_categories_ = [None if code < 0 else names[code] for code in found.category]
        origin = found.z.mean(0, dtype=np.float64)
        self.discovered_ = Clustering(
            labels=found.labels,
            confidence=found.components.probabilities(found.z)[np.arange(len(rows)), found.labels],
            representations=found.z,
            components=found.components,
            bound=0.0,
            starts=(Start(len(found.category), 0.0, None, True),),
            ids=rows.ids,
            threshold=self.confidence,
            names=with_new_names(self.discovered_categories_, names),
            is_new=found.category < 0,
            novelty=(found.category < 0)[found.labels].astype(np.float64),
            tally=Tally.of(found.model, found.z, found.labels, len(found.category), origin, 1.0),
            given=Given.of(rows.ids, [names[code] if code >= 0 else None for code in codes.tolist()], None, None)[0],
            about=self._about(rows, started, {"chosen by": "self-training"}),
            rows=rows,
            model=self,
        )
        return self

    def _fit_preparation(self, rows: Rows) -> tuple[Preparation, Rows]:
        return fit_preparation(
            rows,
            scaling=self.scaling,
            text=self.text,
            embedding_model=self.embedding_model,
            images=self.images,
            image_model=self.image_model,
            image_scaling=self.image_scaling,
            sounds=self.sounds,
        )

    def cluster(
        self,
        X: Any,  # noqa: N803 - scikit-learn's name
        y: Any = None,
        *,
        known: Literal["auto", "use", "ignore"] = "auto",
        must_link: Any = None,
        cannot_link: Any = None,
        max_clusters: int | Literal["auto"] | None = None,
    ) -> Clustering:
        """Find the clusters of rows, which of them are of known categories, and how many there are.

        The rows are clustered together: other rows beside them may change the clusters.

        Parameters
        ----------
        X : array, data frame, list or Rows
            The rows.
        y : array-like of shape (rows,), optional
            The category of some rows, known or new; None, NaN, "" or -1 for all others. Labelled rows are in the
            cluster of their label, which has its name. By default those that rows of ``read_data(partial=True)`` bring
            along.
        known : {"auto", "use", "ignore"}
            Whether rows may be of the categories of the training. "auto": where the model has learned to recognise
            them, from that probability on which served clusters best in its training. "use": from a probability of
            one half on, and an error where it has not learned it. "ignore": all rows are of new categories.
        must_link, cannot_link : sequence of pairs, optional
            Pairs of rows that are of one category, or of two; rows are given by their places or by their ids.
        max_clusters : int or "auto", optional
            The largest number of clusters; by default the model's. There are more where labels or links need them.
        """
        check_is_fitted(self, "model_")
        self.check_settings()
        search = self.search(max_clusters)
        limit = search.limit(self.model_)
        started = time.perf_counter()
        categories = self.recognised(known)
        rows, z = self.represent(X)
        given, links = Given.of(rows.ids, rows.said if y is None else y, must_link, cannot_link)
        with Waiting("clustering", enabled=self.progress):
            found, settled = cluster_array(self.model_, z, search, categories, links)
        clusters = len(settled.names)
        warn_if_all_are_used(clusters, limit, len(rows))
        return Clustering(
            labels=fixed(settled.labels),
            confidence=fixed(settled.confidence),
            representations=fixed(z),
            components=settled.components,
            bound=found.bound,
            starts=found.starts,
            ids=rows.ids,
            k_probabilities=shifted(found.k_probabilities, clusters - len(found.components.weights)),
            facts=settled.facts,
            names=settled.names,
            is_new=settled.is_new,
            novelty=settled.novelty,
            outlier_probability=settled.stray,
            tally=settled.tally,
            given=given,
            threshold=self.confidence,
            categories=rows.labels,
            about=self._about(
                rows,
                started,
                {
                    "known": known,
                    "max_clusters": "auto" if limit is None else limit,
                    "min_cluster_size": int(self.min_cluster_size),
                    "restarts": search.restarts,
                    "weight of a row": round(found.weight, 4),
                    "chosen by": "bound" if found.selected_by == "bound" else "learned choice",
                },
            ),
            rows=rows,
            model=self,
        )

    def _about(self, rows: Rows, started: float, search: dict[str, Any]) -> dict[str, Any]:
        """Return what a clustering says of how it was made; ``search`` is how clusters were searched for."""
        return {
            "data": rows.source,
            "kind": rows.kind,
            "rows": len(rows),
            "trained on": f"{len(self.categories_)} categories",
            **search,
            "seed": int(self.seed),
            "seconds": round(time.perf_counter() - started, 2),
            "versions": versions(),
        }

    def recognised(self, known: Literal["auto", "use", "ignore"]) -> Known:
        """Return the categories of the training that rows may be of, by the ``known`` of :meth:`cluster`."""
        if known not in ("auto", "use", "ignore"):
            raise ValueError(f"known={known!r}: it must be 'auto', 'use' or 'ignore'")
        if known == "use" and self.model_.known is None:
            raise ValueError(
                "known='use': this model has not learned to recognise the categories of its training; pass 'auto' or "
                "'ignore', or train it on more categories, with choose='auto'"
            )
        # What recognises them was learned for clusters that the learned selector takes.
        use = known == "use" or (known == "auto" and self.choose != "bound")
        found = Known.of(self.model_, self.categories_, use)
        return replace(found, threshold=0.5) if known == "use" else found

    def search(self, max_clusters: int | Literal["auto"] | None = None) -> Search:
        """Return how clusters are searched for; at most ``max_clusters`` (by default the model's)."""
        limit = self.max_clusters if max_clusters is None else max_clusters
        check_max_clusters(limit)
        most = None if limit == "auto" else int(limit)
        effective = self.model_.config.effective_rows if self.effective_rows == "auto" else self.effective_rows
        restarts = None if self.restarts is None else int(self.restarts)
        return Search(most, int(self.min_cluster_size), restarts, effective, int(self.seed), self.choose)

    def fit_predict(self, X: Any, y: Any = None) -> NDArray[np.int64]:  # noqa: N803
        """Learn from ``X`` and ``y``, then cluster the same rows."""
        return self.fit(X, y).predict(X)

    def predict(self, X: Any) -> NDArray[np.int64]:  # noqa: N803
        """Return the cluster of each row, numbered by size. The rows are clustered together: each depends on all."""
        return self.cluster(X).labels.copy()

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return (rows, clusters), the probability of each cluster. The rows are clustered together."""
        return self.cluster(X).probabilities

    def transform(self, X: Any) -> NDArray[np.float32]:  # noqa: N803
        """Return (rows, S), representations in which rows of a category are near each other."""
        check_is_fitted(self, "model_")
        return self.represent(X)[1]

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """Return the adjusted Rand index of the clusters of ``X`` with the categories ``y``."""
        check_is_fitted(self, "model_")
        rows = self._rows(X, y)
        if rows.labels is None:
            raise ValueError("y=None: pass the known categories, or rows that have labels")
        return float(adjusted_rand_score(rows.labels, self.cluster(replace(rows, labels=None)).labels))

    def represent(self, X: Any) -> tuple[Rows, NDArray[np.float32]]:  # noqa: N803
        """Return the rows as they were read, and their representations."""
        check_is_fitted(self, "model_")
        rows = self._rows(X)
        x = self.preparation_(rows)
        return rows, representations(self.model_, x, rows.source)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write weights, settings, categories and the preparation of rows to one safetensors file."""
        check_is_fitted(self, "model_")
        save_model(self.model_, path, self.categories_, self.description())

    def description(self) -> dict[str, Any]:
        """Return what the model file holds besides the weights."""
        names = getattr(self, "feature_names_in_", None)
        return SavedEstimator(
            self.get_params(),
            self.preparation_,
            None if names is None else [str(name) for name in names],
            list(getattr(self, "decisions_", [])),
        ).to_dict()

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        device: str = "auto",
        *,
        embedding_model: str | os.PathLike[str] | None = None,
        image_model: str | os.PathLike[str] | None = None,
    ) -> MetaClusterer:
        """Load what :meth:`save` wrote, or a file of :func:`save_model` that says how rows are prepared.

        Nothing is downloaded because the file says so. ``embedding_model`` is where the embedding model of a model of
        texts is, if not where the file says: a folder, or a name on the Hugging Face hub, from where it is downloaded.
        ``image_model`` is where that of a model of images is: a folder, an .onnx file or such a name.
        """
        model, description = load_model(path, device=device)
        with refusing(path, "a MetaClusterer"):
            estimator = cls.of(model, description, device)
        estimator._use_models({"embedding_model": embedding_model, "image_model": image_model}, str(path))
        return estimator

    def _use_models(self, models: Mapping[str, str | os.PathLike[str] | None], name: str = "the model") -> None:
        """Take the models that embed rows from other places; ``name`` is what a message calls this model."""
        for argument, (form, what) in EMBEDS.items():
            model = models.get(argument)
            if model is None:
                continue
            preparation = self.preparation_
            table = form is EmbeddingPreparation and isinstance(preparation, TablePreparation) and preparation.embeds
            if not isinstance(preparation, form) and not table:
                raise ValueError(f"{argument}={str(model)!r}: {name} has no {what}; omit it")
            self.preparation_ = cast(Any, preparation).with_model(model)

    @classmethod
    def of(cls, model: ClusteringModel, description: Description, device: str = "auto") -> MetaClusterer:
        """Return an estimator for a trained model."""
        saved = SavedEstimator.from_dict(description.input, model)
        known = set(cls._get_param_names())
        settings = {name: value for name, value in saved.settings.items() if name in known}
        estimator = cls(**{**settings, "device": device})
        estimator.check_settings()
        estimator.model_ = model.eval()
        estimator.preparation_ = restored(saved.preparation, model)
        estimator.categories_ = list(description.categories)
        estimator.decisions_ = saved.decisions
        if saved.preparation.kind == "vectors":
            estimator.n_features_in_ = saved.preparation.input_shape[0]
            if saved.feature_names is not None:
                estimator.feature_names_in_ = np.array(saved.feature_names, dtype=object)
        return estimator

    @property
    def _n_features_out(self) -> int:
        return int(self.model_.config.representation)

    def _rows(self, X: Any, y: Any = None, training: bool = False) -> Rows:  # noqa: N803
        """Return the rows of ``X``; a matrix of numbers is validated as scikit-learn does."""
        like: Preparation | None = None if training else self.preparation_
        if not is_numeric_matrix(X) or (like is not None and like.kind != "vectors"):
            rows = as_rows(X, y, like, partial=training)
            if training and rows.labels is None and rows.partial is None:
                raise ValueError("MetaClusterer requires y to be passed, but the target y is None: give categories")
            for name in ("n_features_in_", "feature_names_in_") if training else ():
                if hasattr(self, name):
                    delattr(self, name)
            if training and rows.kind == "vectors" and not isinstance(rows.values, list):
                self.n_features_in_ = int(rows.values.shape[1])
                if rows.columns:
                    self.feature_names_in_ = np.array(rows.columns, dtype=object)
            return rows
        checks: dict[str, Any] = {"accept_sparse": "csr", "dtype": "numeric", "reset": training}
        if y is None and not training:
            return with_table(self._named(as_rows(validate_data(self, X, **checks))), X)
        given = y
        if training and y is not None:
            # scikit-learn takes neither None nor NaN for a label; a column of labels is a mistake that it warns of.
            given = written_labels(column_or_1d(y, warn=True) if getattr(y, "ndim", 1) == 2 else y)
            y = read_labels(given)[0]
        X, y = validate_data(self, X, y, **checks, ensure_min_samples=2 if training else 1, y_numeric=False)
        return self._named(as_rows(X, given if training else column_or_1d(y), partial=training))

    def _named(self, rows: Rows) -> Rows:
        """Give columns that scikit-learn has validated the names that were seen in training."""
        return replace(rows, columns=tuple(str(name) for name in getattr(self, "feature_names_in_", ())))

    def check_settings(self) -> None:
        """Raise an error that names an invalid setting, before anything is read or trained."""
        check_settings(self.get_params())

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        tags.input_tags.string = True
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


def notes_on(preparation: Preparation, rows: Rows) -> list[str]:
    """Return what a preparation has found or chosen, as it said last of the rows."""
    noted = isinstance(preparation, ImageModelPreparation | SpectrogramPreparation)
    return list(rows.notes[-1:]) if noted else []


def restored(preparation: Preparation, model: ClusteringModel) -> Preparation:
    """Return the preparation of a file, with the weights of its embedding model that the file holds."""
    held = None if model.embedder is None else TunedWeights(model.embedder.tensors)
    if isinstance(preparation, EmbeddingPreparation):
        return preparation.restored(held)
    if held is not None:
        raise DataError("it holds weights of an embedding model, but its rows are not embedded: get another copy")
    return preparation
