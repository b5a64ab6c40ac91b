"""Customers: six hidden columns separate their segments, twenty are noise, and the data are mixtures of all of them.

KMeans cannot know which is which. metaclust learns it from 60 known segments, and finds seven new ones.
"""

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

from metaclust import MetaClusterer

generator = np.random.default_rng(0)
mixing = generator.normal(size=(26, 26)) / 5


def customers(segments: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of 26 numbers, and the segment of each."""
    centres = 3 * generator.normal(size=(segments, 6))
    y = np.repeat(np.arange(segments), rows)
    telling = centres[y] + generator.normal(size=(len(y), 6))
    other = 3 * generator.normal(size=(len(y), 20))
    return np.hstack([telling, other]) @ mixing, y


X, y = customers(segments=60, rows=25)  # known segments
X_new, y_new = customers(segments=7, rows=60)  # new segments; y_new is only used to compare

model = MetaClusterer().fit(X, y)
result = model.cluster(X_new)
given_k = KMeans(7, n_init=10, random_state=0).fit_predict(StandardScaler().fit_transform(X_new))

print(result)
print(f"metaclust: ARI {adjusted_rand_score(y_new, result.labels):.2f}, {result.n_clusters} segments found")
print(f"KMeans, given K = 7: ARI {adjusted_rand_score(y_new, given_k):.2f}")
