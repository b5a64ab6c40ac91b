"""A mixture, fitted to a folder of shards by two worker processes; each shard gets a file of labels with its name.

On several machines, pass address="tcp://..." of a Dask scheduler instead of workers. Needs metaclust[scale].
"""

import tempfile
from pathlib import Path

import numpy as np

from metaclust import InfiniteGaussianMixture
from metaclust.scale import cluster_shards


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    (folder / "rows").mkdir()
    generator = np.random.default_rng(0)
    centres = 8 * generator.normal(size=(6, 5))
    for shard in range(8):
        rows = centres[generator.integers(0, 6, 5000)] + generator.normal(size=(5000, 5))
        np.save(folder / "rows" / f"{shard}.npy", rows.astype(np.float32))

    mixture = InfiniteGaussianMixture(max_components=6)
    result = cluster_shards(mixture, folder / "rows", folder / "labels", engine="dask", workers=2)
    print(result)
    print(result.labels().collect())


# Worker processes import this file too, and must not start workers of their own.
if __name__ == "__main__":
    main()
