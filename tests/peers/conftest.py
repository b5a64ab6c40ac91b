"""A small model and a clustering by it, trained once for the tests against reports of neighbouring projects."""

import jaxtyping
import pytest
from peer_rows import categories

from metaclust import Clustering, MetaClusterer


@pytest.fixture(scope="session")
def model() -> MetaClusterer:
    """Trained to tell Gaussian categories in four dimensions apart, without the checks of types, which take long."""
    settings = {"pretrain_steps": 60, "steps": 10, "validation": 0.0, "representation": 4, "device": "cpu"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jaxtyping.config, "jaxtyping_disable", True)
        return MetaClusterer(**settings, encoder="network", choose="bound", progress=False).fit(*categories(16, 12, 0))


@pytest.fixture(scope="session")
def clustering(model: MetaClusterer) -> Clustering:
    """Four categories that the model has never seen."""
    return model.cluster(categories(4, 20, 5)[0])
