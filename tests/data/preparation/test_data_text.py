"""Bags of words: the rules against sets and dicts, TF-IDF against scikit-learn, and sparse rows all the way."""

import json
import math
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer

from metaclust import (
    ClusteringModel,
    DataError,
    DataWarning,
    ModelConfig,
    Preparation,
    Rows,
    TaskSampler,
    WordRules,
    describe_preparation,
    evaluate,
    fit_preparation,
    preparation_from,
    rows_from_array,
)
from metaclust.data import PAPER_RULES, SparseRows
from metaclust.data.preparation.vocabulary import Words, find_words
from metaclust.data.sparse import dense

WORDS = ["fish", "duck", "Goose", "swan", "straße", "東京", "été", "x1", "don't", "a", "I", "snake_case"]


def text_rows(texts: list[str], labels: list[str] | None = None) -> Rows:
    return Rows("text", texts, [f"id {i}" for i in range(len(texts))], labels, ("body",), "texts.csv")


def invented(count: int = 60, seed: int = 0) -> list[str]:
    """Texts over a few words; some are long, some short, some are frequent."""
    generator = np.random.default_rng(seed)
    chance = 1 / np.arange(1, 41)
    words = [WORDS[i] if i < len(WORDS) else f"word{i}" for i in range(40)]
    return [
        " ".join(generator.choice(words, generator.integers(3, 30), p=chance / chance.sum())) + "."
        for _ in range(count)
    ]


def tokens(text: str) -> list[str]:
    """Runs of two or more letters, digits and underscores."""
    return [word for word in re.split(r"\W+", text.lower()) if len(word) > 1]


def by_sets(texts: list[str], labels: list[str] | None, rules: WordRules) -> tuple[list[str], list[int]]:
    """The words and the numbers of the documents that the rules keep: each rule once, in their order."""
    containing = Counter(word for text in texts for word in set(tokens(text)))
    vocabulary = {word for word, count in containing.items() if count >= rules.min_documents}
    documents = [i for i, text in enumerate(texts) if len(vocabulary & set(tokens(text))) >= rules.min_words]
    if labels is not None:
        sizes = Counter(labels[i] for i in documents)
        documents = [i for i in documents if sizes[labels[i]] >= rules.min_rows]
    return sorted(vocabulary), documents


@given(
    st.lists(st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join), min_size=1, max_size=12),
    st.integers(1, 4),
    st.integers(0, 3),
    st.integers(1, 4),
    st.none() | st.integers(0, 5),
)
def test_the_rules_keep_what_sets_and_dicts_keep(
    texts: list[str], min_documents: int, min_words: int, min_rows: int, seed: int | None
) -> None:
    labels = None if seed is None else [str(i) for i in np.random.default_rng(seed).integers(0, 3, len(texts))]
    rules = WordRules(min_documents, min_words, min_rows, None)
    vocabulary, documents = by_sets(texts, labels, rules)
    rows = text_rows(texts, labels)
    if not vocabulary or not documents:
        with pytest.raises(DataError, match=r"texts.csv.* lower min_(documents|words|rows)"):
            find_words(rows, rules)
        return
    words, kept = find_words(rows, rules)
    assert list(words.vocabulary) == vocabulary
    assert kept.ids == [f"id {i}" for i in documents]
    assert kept.values == [texts[i] for i in documents]
    assert kept.labels == (None if labels is None else [labels[i] for i in documents])
    with_word = Counter(word for i in documents for word in set(tokens(texts[i])))
    idf = [math.log((1 + len(documents)) / (1 + with_word[word])) + 1 for word in vocabulary]
    np.testing.assert_allclose(words.idf, idf, rtol=1e-6)  # type: ignore[arg-type]


def test_the_rules_are_applied_once() -> None:
    """Without the last text "rare" is in one document only, and without that word the first has one word only."""
    texts = ["common rare", "common often", "common often", "rare"]
    words, kept = find_words(text_rows(texts), WordRules(min_documents=2, min_words=2))
    assert words.vocabulary == ("common", "often", "rare")
    assert kept.ids == ["id 0", "id 1", "id 2"]


def test_categories_are_counted_after_documents_are_left_out() -> None:
    texts = ["fish duck", "fish duck", "fish", "fish duck", "duck"]
    _, kept = find_words(text_rows(texts, list("aabbb")), WordRules(min_documents=1, min_words=2, min_rows=2))
    assert kept.ids == ["id 0", "id 1"]


@pytest.mark.parametrize("most", [1, 5, 17, 1000])
def test_only_the_most_frequent_words_are_kept(most: int) -> None:
    texts = [" ".join(f"w{word:02d}" for word in range(20) for _ in range(20 - word)), "w00 w01", "w19 w00"]
    words, _ = find_words(text_rows(texts), WordRules(min_documents=1, max_words=most))
    counts = Counter(word for text in texts for word in tokens(text))
    assert set(words.vocabulary) == {word for word, _ in counts.most_common(most)}


def test_what_was_left_out_is_noted() -> None:
    _, kept = find_words(text_rows(["fish duck", "swan", "duck fish"]), WordRules(min_documents=2))
    assert kept.notes == ("2 words, 1 of 3 texts left out",)


def test_the_papers_rules_are_those_of_its_text_data() -> None:
    assert PAPER_RULES["patent"] == WordRules(min_documents=100, min_words=100, min_rows=10, max_words=None)
    assert PAPER_RULES["dmoz"] == WordRules(min_documents=300, min_words=300, min_rows=10, max_words=None)
    assert set(PAPER_RULES) == {"patent", "dmoz"}


@pytest.mark.usefixtures("_without_type_checks")
@pytest.mark.parametrize(
    ("name", "value"), [("min_documents", 0), ("min_words", -1), ("min_rows", 0), ("max_words", 0), ("min_rows", 1.5)]
)
def test_rules_that_make_no_sense_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name}={value}: it must be a whole number"):
        WordRules(**{name: value})


@pytest.mark.parametrize("min_documents", [1, 2, 5])
def test_tfidf_is_scikit_learns(min_documents: int) -> None:
    texts = invented()
    rows = text_rows(texts)
    words, kept = find_words(rows, WordRules(min_documents))
    reference = TfidfVectorizer(sublinear_tf=True, min_df=min_documents)
    expected = reference.fit_transform(texts)
    assert len(kept) == len(rows)
    assert list(words.vocabulary) == reference.get_feature_names_out().tolist()
    weighed = words(rows)
    assert weighed.dtype == np.float32
    np.testing.assert_allclose(weighed.toarray(), expected.toarray(), rtol=2e-6, atol=1e-7)
    new = invented(20, seed=1)
    np.testing.assert_allclose(
        words(text_rows(new)).toarray(), reference.transform(new).toarray(), rtol=2e-6, atol=1e-7
    )


def test_a_preparation_scales_tfidf_to_numbers_of_about_one() -> None:
    rows = text_rows(invented())
    preparation, _ = fit_preparation(rows)
    expected = TfidfVectorizer(sublinear_tf=True, min_df=2).fit_transform(rows.values).toarray()
    prepared = dense(preparation(rows)).numpy()
    assert prepared.shape[1:] == preparation.input_shape
    np.testing.assert_allclose(prepared, expected * math.sqrt(expected.shape[1]), rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose((prepared**2).mean(1), 1, rtol=1e-5)


def test_counts_are_how_often_a_word_is_in_a_text() -> None:
    rows = text_rows(invented())
    preparation, _ = fit_preparation(rows, text="counts", rules=WordRules(1))
    vocabulary = describe_preparation(preparation)["vocabulary"]
    counts = [Counter(tokens(text)) for text in rows.values]
    expected = [[count[word] for word in vocabulary] for count in counts]
    assert dense(preparation(rows)).tolist() == expected


@pytest.mark.parametrize("text", ["tfidf", "counts"])
def test_rows_are_never_dense(text: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("made dense")

    for kind in (sparse.csr_array, sparse.csr_matrix, sparse.csc_matrix, sparse.csc_array, sparse.coo_array):
        for method in ("toarray", "todense"):
            monkeypatch.setattr(kind, method, refuse)
    rows = text_rows(invented(), ["a", "b", "c"] * 20)
    preparation, kept = fit_preparation(rows, text=text, rules=WordRules(2, 3, 2))
    prepared = preparation(kept)
    assert isinstance(prepared, SparseRows)
    assert isinstance(prepared.array, sparse.csr_array)
    assert prepared.array.dtype == np.float32
    assert prepared.array.nnz == sum(
        len(set(tokens(value)) & set(describe_preparation(preparation)["vocabulary"])) for value in kept.values
    )


def test_texts_without_a_known_word_are_zero_and_said() -> None:
    preparation, _ = fit_preparation(text_rows(["fish duck", "duck fish"]))
    with pytest.warns(DataWarning, match=r"texts.csv: 2 of 3 texts have no word .* first row 1 \(counting from 0\)"):
        prepared = dense(preparation(text_rows(["a fish!", "schwan", "?!"])))
    assert prepared[0].norm() > 0
    assert not prepared[1:].any()


@pytest.mark.parametrize("texts", [["fish duck", "fish swan", "fish"], ["fish", "duck", "swan"]])
def test_more_documents_than_there_are_texts_are_refused(texts: list[str]) -> None:
    with pytest.raises(DataError, match=r"texts.csv.* 3 (of the )?texts.*min_documents"):
        find_words(text_rows(texts), WordRules(min_documents=4))


@pytest.mark.parametrize("texts", [["fish", "duck", "swan"], ["? !", "- a b", "i"]])
def test_an_empty_vocabulary_is_refused(texts: list[str]) -> None:
    with pytest.raises(DataError, match=r"texts.csv: no word is in 2 of the 3 texts or more: .* longer texts$"):
        find_words(text_rows(texts))
    with pytest.raises(DataError, match=r"longer texts, or lower min_documents of the rules$"):
        find_words(text_rows(texts), WordRules())
    with pytest.raises(DataError, match="the vocabulary is empty"):
        Words(())


def test_vectors_have_no_words() -> None:
    with pytest.raises(DataError, match="X holds vectors, not text"):
        find_words(rows_from_array(np.ones((2, 2))))


@pytest.mark.usefixtures("_without_type_checks")
def test_options_that_there_are_not_are_named() -> None:
    wrong: Any = "bm25"
    with pytest.raises(ValueError, match="weighting='bm25': choose 'counts' or 'tfidf'"):
        find_words(text_rows(["fish", "fish"]), weighting=wrong)
    with pytest.raises(ValueError, match="text='bm25': choose 'tfidf', 'counts' or 'embeddings'"):
        fit_preparation(text_rows(["fish", "fish"]), text=wrong)


@pytest.mark.parametrize("text", ["tfidf", "counts"])
def test_a_description_in_json_prepares_the_same_bits(text: Any) -> None:
    rows = text_rows(invented())
    preparation, _ = fit_preparation(rows, text=text)
    again = preparation_from(json.loads(json.dumps(describe_preparation(preparation))))
    assert again == preparation
    new = text_rows(invented(30, seed=2))
    one, other = preparation(new), again(new)
    assert isinstance(one, SparseRows)
    assert isinstance(other, SparseRows)
    for part in ("data", "indices", "indptr"):
        assert np.array_equal(getattr(one.array, part), getattr(other.array, part))


def sparse_and_dense() -> tuple[SparseRows, torch.Tensor, np.ndarray[Any, np.dtype[np.int64]], Preparation]:
    labels = [f"{i % 6}" for i in range(60)]
    rows = text_rows(invented(), labels)
    preparation, kept = fit_preparation(rows)
    prepared = preparation(kept)
    assert isinstance(prepared, SparseRows)
    return prepared, dense(prepared), kept.numbered()[0], preparation


def test_a_batch_of_sparse_rows_is_the_batch_of_dense_rows() -> None:
    x, dense_x, y, _ = sparse_and_dense()
    for rows in (None, 4, (2, 6)):
        one = TaskSampler(x, y, np.unique(y), n_categories=(2, 4), rows=rows, seed=3)
        other = TaskSampler(dense_x, y, np.unique(y), n_categories=(2, 4), rows=rows, seed=3)
        for step in range(5):
            first, second = one.batch(step), other.batch(step)
            for name in ("x", "category", "y", "mask", "index"):
                assert torch.equal(getattr(first, name), getattr(second, name))


def test_a_model_makes_the_same_of_sparse_and_dense_rows() -> None:
    x, dense_x, y, preparation = sparse_and_dense()
    settings: dict[str, Any] = {"representation": 3, "max_clusters": 5, "steps": 4, "hidden": 16}
    model = ClusteringModel(ModelConfig(preparation.input_shape, **settings))
    for block in (7, 1024):
        assert torch.equal(model.transform(x, block=block), model.transform(dense_x, block=block))
    tasks = TaskSampler(x, y, np.unique(y), n_categories=(2, 4)).fixed(6)
    one, other = (evaluate(model, data, tasks) for data in (x, dense_x))
    assert np.array_equal(one.ari, other.ari)
    assert np.array_equal(one.found, other.found)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_sparse_row_that_is_not_finite_is_refused(value: float) -> None:
    array = sparse.csr_array(np.eye(4))
    array.data[2] = value
    assert SparseRows(array).finite().tolist() == [True, True, False, True]
    with pytest.raises(ValueError, match="x holds NaN or infinity, first in row 2"):
        TaskSampler(SparseRows(array), np.array([0, 0, 1, 1]), np.arange(2), n_categories=(2, 2))


@given(st.integers(1, 8), st.integers(1, 5), st.data())
def test_sparse_rows_are_indexed_as_a_tensor_is(count: int, width: int, data: st.DataObject) -> None:
    array = np.random.default_rng(count * 10 + width).integers(-1, 2, (count, width)).astype(np.float32)
    rows, tensor = SparseRows(array), torch.from_numpy(array)
    assert len(rows) == count
    assert rows.shape == tuple(tensor.shape)
    chosen = torch.tensor(data.draw(st.lists(st.integers(0, count - 1), max_size=10)), dtype=torch.int64)
    start = data.draw(st.integers(0, count))
    for index in (chosen, chosen.numpy(), slice(start, None), slice(None, start)):
        assert torch.equal(dense(rows[index]), tensor[index])
    assert dense(tensor) is tensor


def test_texts_that_no_word_tells_apart_are_an_error():
    with pytest.raises(DataError, match=r"^texts.csv: those of column 'body' do not differ in their words, .*columns="):
        fit_preparation(text_rows(["please help me now"] * 30, ["a", "b", "c"] * 10))
