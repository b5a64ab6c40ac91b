"""Icons: learn from 300 concepts, then cluster a pile of icons of unseen concepts."""

import numpy as np

from metaclust import MetaClusterer, load_dataset

icons = load_dataset("icons")  # 11,499 icons, 419 concepts, part of the package
known, new = icons.y < 300, icons.y >= 410  # the pile: the last nine concepts of the alphabet
names = np.array(icons.categories)[icons.y]

model = MetaClusterer().fit(icons.X[known], names[known])
result = model.cluster(icons.X[new])

print(result)
print({name: round(value, 2) for name, value in result.scores(names[new]).items()})
for cluster in range(result.n_clusters):
    typical = names[new][result.typical(cluster, 5)]
    print(f"cluster {cluster}: {result.sizes[cluster]} icons, most typical: {', '.join(typical)}")
model.save("icons.safetensors")
result.report("icons.html", force=True)
