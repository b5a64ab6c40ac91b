"""The paper's results: Iwata, "Meta-learning representations for clustering with infinite Gaussian mixture models".

Its figures have no numbers, so what its text says of them is quoted here. Its settings are the presets, see
:mod:`metaclust.experiments.settings`.
"""

from __future__ import annotations

TABLE1: dict[str, dict[str, float]] = {
    dataset: dict(zip(("ours", "proto", "ae", "siamese", "triplet", "nn", "vade", "pca", "flda"), row, strict=True))
    for dataset, row in {
        "Patent": (0.550, 0.480, 0.000, 0.016, 0.114, 0.236, 0.000, 0.181, 0.043),
        "Dmoz": (0.469, 0.313, 0.000, 0.000, 0.018, 0.161, 0.001, 0.062, 0.028),
        "Omniglot": (0.869, 0.815, 0.112, 0.006, 0.308, 0.480, 0.026, 0.124, 0.090),
        "Mini-imagenet": (0.112, 0.052, 0.034, 0.000, 0.013, 0.064, 0.000, 0.005, 0.014),
    }.items()
}
"""Test ARI, mean over ten splits."""

ABLATION: dict[tuple[str, int], dict[str, tuple[float, float]]] = {
    key: dict(zip(("ours", "without-f_r", "without-pretraining", "with-em", "with-prob"), row, strict=True))
    for key, row in {
        ("Patent", 10): ((0.550, 0.012), (0.539, 0.009), (0.330, 0.016), (0.472, 0.011), (0.546, 0.011)),
        ("Dmoz", 10): ((0.469, 0.015), (0.462, 0.014), (0.000, 0.000), (0.411, 0.017), (0.427, 0.015)),
        ("Omniglot", 10): ((0.869, 0.009), (0.835, 0.023), (0.763, 0.016), (0.865, 0.013), (0.858, 0.008)),
        ("Mini-imagenet", 10): ((0.112, 0.005), (0.092, 0.008), (0.076, 0.005), (0.068, 0.008), (0.105, 0.005)),
        ("Patent", 2): ((0.391, 0.013), (0.371, 0.015), (0.302, 0.011), (0.348, 0.008), (0.389, 0.016)),
        ("Dmoz", 2): ((0.290, 0.015), (0.265, 0.013), (0.000, 0.000), (0.261, 0.014), (0.268, 0.014)),
        ("Omniglot", 2): ((0.651, 0.011), (0.582, 0.008), (0.627, 0.009), (0.633, 0.013), (0.618, 0.010)),
        ("Mini-imagenet", 2): ((0.084, 0.007), (0.068, 0.007), (0.091, 0.010), (0.063, 0.003), (0.078, 0.007)),
    }.items()
}
"""Test ARI and its standard error, by data set and width of z."""

TIME: dict[str, dict[str, float]] = {
    dataset: dict(zip(("ours", "proto", "ae", "siamese", "triplet"), row, strict=True))
    for dataset, row in {
        "Patent": (6066, 1542, 1223, 1528, 1591),
        "Dmoz": (13861, 4939, 4513, 4683, 5107),
        "Omniglot": (23564, 7891, 8366, 7106, 7627),
        "Mini-imagenet": (49983, 20570, 20835, 20384, 21053),
    }.items()
}
"""Seconds of training on a GTX 1080Ti."""

TEST_SECONDS = {"Patent": 1.08, "Dmoz": 2.12, "Omniglot": 2.01, "Mini-imagenet": 14.89}
"""Mean seconds of a test of ours."""

SAYS = {
    "vb-steps-train": "best with five or ten steps; with one or three no clusters are found, and with 50 or 100 the "
    "loss is hard to propagate back",
    "vb-steps-test": "highest around ten steps, the number in training; other numbers can make it worse",
    "categories": "the more training categories, the better",
    "tsne": "ours puts each category into a Gaussian; AE fails to; Triplet puts categories together, but does not "
    "separate them well",
}
