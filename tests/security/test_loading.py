"""Files that attackers made: each is refused with a message that says what is wrong, and nothing is obeyed."""

import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from fuzz_files import (
    clustering_seeds,
    method_seeds,
    mixture,
    mixture_rows,
    model_seeds,
    run_seeds,
    state_seeds,
    try_model,
    try_run,
)
from mutations import Parts, parsed, written
from sklearn.exceptions import ConvergenceWarning

from metaclust import CheckpointError, Clustering, ClusteringModel, MetaClusterer, ModelConfig, load_model, save_model
from metaclust.data.rows import DataError
from metaclust.experiments.methods import load_method

pytestmark = pytest.mark.usefixtures("_without_type_checks")
SEEDS = {
    "model": model_seeds,
    "clustering": clustering_seeds,
    "fit": state_seeds,
    "run": run_seeds,
    "method": method_seeds,
}
NAN, INF = float("nan"), float("inf")


@pytest.fixture(scope="session")
def contents():
    with warnings.catch_warnings():
        # Of rows without names of columns, of a fit that was cut short.
        warnings.simplefilter("ignore")
        return {name: list(make()) for name, make in SEEDS.items()}


def refused(load, path, message):
    with pytest.raises(CheckpointError) as caught:
        load(path)
    told = str(caught.value)
    assert path.name in told
    assert re.search(message, told), told
    assert "allow_pickle" not in told
    assert len(told) < 1000


def with_value(name, value, place=...):
    """A change of a tensor: all its values, or one of them."""

    def change(parts: Parts) -> None:
        parts.tensors[name] = parts.tensors[name].copy()
        parts.tensors[name][place] = value

    return change


def with_array(name, make):
    def change(parts: Parts) -> None:
        parts.tensors[name] = make(parts.tensors[name])

    return change


def as_float32(name):
    return with_array(name, lambda old: old.astype("f4"))


def with_field(*path_and_value):
    """A change of a field of the header, given by the names that lead to it."""
    *path, last, value = path_and_value

    def change(parts: Parts) -> None:
        place = parts.header
        for name in path:
            place = place[name]
        place[last] = value

    return change


def without_field(name):
    return lambda parts: parts.header.pop(name)


def without_tensor(name):
    return lambda parts: parts.tensors.pop(name)


CLUSTERINGS = {
    "labels that overflow": (
        with_value("labels", 2**63 - 1),
        r"labels holds 9\.22337e\+18: its values must be from 0",
    ),
    "negative labels": (with_value("labels", -1, 3), "labels holds -1"),
    "labels without end": (with_value("labels", 10**9, 0), r"labels holds 1e\+09"),
    "labels beyond the clusters": (with_value("labels", 4, 0), "labels holds 4: its values must be from 0 to"),
    "labels as floats": (with_array("labels", lambda old: old.astype("f4")), "labels is float32: it must be int64"),
    "a label too many": (with_array("labels", lambda old: np.append(old, 0)), "size mismatch for confidence"),
    "NaN confidence": (with_value("confidence", NAN, 1), "confidence holds NaN or infinity"),
    "confidence above one": (with_value("confidence", 1.5, 1), "confidence holds 1.5: its values must be from 0 to 1"),
    "confidence below zero": (with_value("confidence", -0.1, 1), "confidence holds -0.1"),
    "NaN representations": (with_value("representations", NAN, (0, 1)), "representations holds NaN"),
    "flat means": (with_array("means", lambda old: old.reshape(-1)), r"means has shape \(\d+,\)"),
    "turned means": (with_array("means", lambda old: np.ones((5, 7))), "size mismatch"),
    "huge means": (with_value("means", 1e300), r"means holds 1e\+300"),
    "negative precisions": (with_value("precisions", -1.0), "precisions holds -1"),
    "deep precisions": (
        with_array("precisions", lambda old: old[..., None, None, None]),
        "size mismatch for precisions",
    ),
    "means in half precision": (
        with_array("means", lambda old: old.astype("f2")),
        "means is float16: it must be float64 or float32",
    ),
    "weights above one": (with_value("weights", 7.0), "weights holds 7"),
    "an unknown tensor": (lambda parts: parts.tensors.update(extra=np.zeros(3)), "1 tensors are unknown: extra"),
    "too few ids": (with_field("ids", ["a"]), r"ids=\['a'\]: it must be a list of 20 values, not of 1"),
    "ids that are numbers": (with_field("ids", list(range(20))), "ids=.*every value is a string, but number 0 is 0"),
    "ids that are no text": (with_field("ids", ["\ud800"] * 20), "not valid Unicode"),
    "about as text": (with_field("about", "a string"), "about='a string': it must be an object with named fields"),
    "no threshold": (with_field("threshold", None), "threshold=None: it must be a finite number from 0 to 1"),
    "a threshold of 2": (with_field("threshold", 2), "threshold=2: it must be"),
    "too few categories": (with_field("categories", ["a", "b"]), "categories=.*a list of 20 values, not of 2, or null"),
    "a start of no clusters": (with_field("starts", [{"clusters": 0, "bound": 1.0}]), "starts.clusters=0"),
    "starts of lists": (with_field("starts", [[1, 2]]), r"starts=.*every value is an object"),
    "a NaN bound": (with_field("bound", NAN), "the number nan, which is not finite"),
    "a number of 400 digits": (with_field("about", {"rows": 10**400}), "more than 64 bits"),
    "deep nesting": (with_field("about", {"a": "nested here"}), "not one of metaclust's|nested more than 16"),
    "a share of no number": (
        with_field("k_probabilities", {"many": 1.0}),
        "k_probabilities has 'many': it must be a num",
    ),
    "a share of no clusters": (with_field("k_probabilities", {"0": 1.0}), "k_probabilities has '0'"),
    "a share of minus two clusters": (with_field("k_probabilities", {"-2": 1.0}), "k_probabilities has '-2'"),
    "a share of other digits": (with_field("k_probabilities", {"\u0663": 1.0}), "k_probabilities has"),
    "a share of clusters without end": (with_field("k_probabilities", {"9" * 400: 1.0}), "k_probabilities has '9999"),
    "a share as text": (with_field("k_probabilities", {"3": "all"}), "k_probabilities.3='all'"),
    "a share above one": (with_field("k_probabilities", {"3": 2.0}), "k_probabilities.3=2.0"),
    "a share below zero": (with_field("k_probabilities", {"3": -0.5}), "k_probabilities.3=-0.5"),
    "a NaN share": (with_field("k_probabilities", {"3": NAN}), "the number nan, which is not finite"),
    "shares as a list": (with_field("k_probabilities", [0.5, 0.5]), r"k_probabilities=.*an object with named fields"),
    "NaN facts": (with_value("facts.features", NAN, (0, 0)), "facts.features holds NaN"),
    "infinite facts": (with_value("facts.mean_square", INF, 0), "facts.mean_square holds NaN or infinity"),
    "a negative distance": (with_value("facts.mean_square", -1.0, 0), "facts.mean_square holds -1"),
    "a negative deviation": (with_value("facts.deviation", -1.0, 0), "facts.deviation holds -1"),
    "huge facts": (with_value("facts.features", 1e300, (0, 0)), r"facts.features holds 1e\+300"),
    "facts of a cluster too many": (
        with_array("facts.deviation", lambda old: np.append(old, 1.0)),
        "size mismatch for facts.deviation",
    ),
    "facts of another width": (
        with_array("facts.features", lambda old: old[:, 1:]),
        "size mismatch for facts.features",
    ),
    "facts in single precision": (
        with_array("facts.mean_square", lambda old: old.astype("f4")),
        "facts.mean_square is float32: it must be float64",
    ),
    "half of the facts": (without_tensor("facts.deviation"), "facts.deviation"),
    "unknown facts": (lambda parts: parts.tensors.update({"facts.extra": np.zeros(3)}), "facts.extra"),
    "restarts without end": (with_field("model", "input", "estimator", "restarts", 10**9), "restarts=1000000000"),
    "a NaN weight of its model": (with_value("model.prior_logs.alpha", NAN), "prior_logs.alpha holds NaN"),
    "another width than its model's": (
        lambda parts: [with_array(name, lambda old: old[:, :2])(parts) for name in ("means", "representations")],
        "have 2 columns, but those of its model have 3",
    ),
}


@pytest.mark.parametrize(("change", "message"), CLUSTERINGS.values(), ids=CLUSTERINGS.keys())
def test_a_clustering(contents, tmp_path, change, message):
    parts = parsed(contents["clustering"][0])
    change(parts)
    (tmp_path / "the-file").write_bytes(written(parts))
    refused(Clustering.load, tmp_path / "the-file", message)


def test_the_interval_of_numbers_far_from_each_other_is_found_at_once(contents, tmp_path):
    parts = parsed(contents["clustering"][0])
    with_field("k_probabilities", {"1": 0.5, "999999999": 0.5})(parts)
    (tmp_path / "the-file").write_bytes(written(parts))
    assert Clustering.load(tmp_path / "the-file", device="cpu").k_interval() == (1, 999_999_999)


WEIGHT = "encoder.network.0.weight"
MODELS = {
    "a NaN concentration": (0, with_value("prior_logs.alpha", NAN), "prior_logs.alpha holds NaN or infinity"),
    "a rate of minus infinity": (0, with_value("prior_logs.rate", -1e30), r"prior_logs.rate holds -1e\+30.*-40 to 40"),
    "a NaN selector": (
        0,
        with_value("choice.scores.network.1.weight", NAN, (0, 0)),
        "choice.scores.network.1.weight holds NaN",
    ),
    "a selector that divides by zero": (0, with_value("choice.merges.spread", 0), "choice.merges.spread holds 0"),
    "numbers of clusters without end": (0, with_value("choice.number", 1e3), r"choice.number holds 1000.*-5 to 5"),
    "another number of features": (
        0,
        with_array("choice.confidence.mean", lambda old: old[:-1]),
        "size mismatch for choice.confidence.mean",
    ),
    "half a selector": (0, without_tensor("choice.merges.mean"), "choice.merges.mean"),
    "a NaN encoder": (0, with_value(WEIGHT, NAN, (0, 0)), "encoder.network.0.weight holds NaN"),
    "an infinite encoder": (0, with_value(WEIGHT, INF, (0, 0)), "encoder.network.0.weight holds NaN or infinity"),
    "huge weights": (0, with_value(WEIGHT, 1e30), r"encoder.network.0.weight holds 1e\+30"),
    "two precisions": (0, with_array(WEIGHT, lambda old: old.astype("f8")), "precisions.*float32, float64"),
    "weights as whole numbers": (0, with_array(WEIGHT, lambda old: old.astype("i8")), "weight is int64"),
    "a negative variance": (4, with_value("encoder.blocks.1.running_var", -1), "running_var holds -1"),
    "batches as floats": (
        4,
        with_array("encoder.blocks.1.num_batches_tracked", lambda old: old.astype("f4")),
        "num_batches_tracked is float32: it must be int64",
    ),
    "a missing tensor": (0, without_tensor(WEIGHT), f"1 tensors are missing: {WEIGHT}"),
    "a huge layer": (0, with_field("config", "hidden", 2**24), "size mismatch for encoder.network.0.weight"),
    "a layer of 64 bits": (0, with_field("config", "hidden", 2**62), "config.hidden=4611686018427387904: it must be"),
    "a layer of 400 digits": (0, with_field("config", "hidden", 10**400), "more than 64 bits"),
    "a layer of a half": (0, with_field("config", "hidden", 4.5), "config.hidden=4.5: it must be a whole number"),
    "huge rows": (0, with_field("config", "input_shape", [2**31 - 1]), "size mismatch"),
    "huge images": (
        4,
        with_field("config", "input_shape", [1, 10**9, 10**9]),
        "size mismatch|overflow|an image may have at most",
    ),
    "steps without end": (0, with_field("config", "steps", 10**9), "config.steps=1000000000"),
    "a string for a number": (0, with_field("config", "alpha", "1"), "config.alpha='1': it must be a finite number"),
    "a concentration of zero": (0, with_field("config", "alpha", 0), "config.alpha=0"),
    "restarts without end": (
        0,
        with_field("input", "estimator", "restarts", 10**9),
        "restarts=1000000000: it must be at",
    ),
    "clusters without end": (0, with_field("input", "estimator", "max_clusters", 10**9), "max_clusters=1000000000"),
    "a minimum without end": (
        0,
        with_field("input", "estimator", "min_cluster_size", 10**9),
        "min_cluster_size=1000000000",
    ),
    "a seed of 400 digits": (0, with_field("input", "estimator", "seed", 10**400), "more than 64 bits"),
    "progress as text": (0, with_field("input", "estimator", "progress", "no"), "estimator.progress='no'"),
    "idf as text": (3, with_field("input", "idf", "123456"), "idf='123456' cannot be right"),
    "idf of texts": (3, with_field("input", "idf", ["1"] * 6), "idf=.* cannot be right"),
    "infinite idf": (3, with_field("input", "idf", [1e308] * 6), "idf=.* cannot be right"),
    "words that are numbers": (3, with_field("input", "vocabulary", list(range(6))), "vocabulary=.* cannot be right"),
    "a mean as text": (0, with_field("input", "mean", "abcd"), "mean='abcd' cannot be right"),
    "a scale of zero": (0, with_field("input", "scale", [0, 1, 1, 1]), "scale=.* cannot be right"),
    "a width of 400 digits": (0, with_field("input", "width", 10**400), "more than 64 bits"),
    "a true number of channels": (4, with_field("input", "channels", True), "channels=True cannot be right"),
    "too few names": (0, with_field("input", "feature_names", ["a"]), "feature_names=.*a list of 4 values"),
    "other names": (0, with_field("input", "feature_names", [*"abce"]), "feature_names are not the columns"),
    "categories that are numbers": (0, with_field("categories", [1, 2]), "categories=.*every value is a string"),
    "a header without an input": (0, without_field("input"), "input is missing"),
    "a format that is true": (0, with_field("format", True), "has format True"),
    "deep nesting": (0, with_field("input", "nested here"), "not one of metaclust's|nested more than 16"),
}


@pytest.mark.parametrize(("seed", "change", "message"), MODELS.values(), ids=MODELS.keys())
def test_a_model(contents, tmp_path, seed, change, message):
    parts = parsed(contents["model"][seed])
    change(parts)
    (tmp_path / "the-file").write_bytes(written(parts))
    refused(lambda path: MetaClusterer.load(path, device="cpu"), tmp_path / "the-file", message)


def test_weights_too_large_for_any_row_are_an_error_of_the_file(contents, tmp_path):
    parts = parsed(contents["model"][0])
    for name in parts.tensors:
        if name.startswith("encoder."):
            with_value(name, 6e4)(parts)
    parts.tensors = {name: value.astype("f2") for name, value in parts.tensors.items()}
    (tmp_path / "the-file").write_bytes(written(parts))
    refused(lambda path: load_model(path, device="cpu"), tmp_path / "the-file", "a row of zeros has no finite")


def test_a_scaling_of_other_units_refuses_the_rows_and_says_where(contents, tmp_path):
    parts = parsed(contents["model"][0])
    with_field("input", "scale", [1.0, 1e-30, 0.5, 1.5])(parts)
    (tmp_path / "the-file").write_bytes(written(parts))
    model = MetaClusterer.load(tmp_path / "the-file", device="cpu")
    with pytest.raises(DataError, match=r"column 'b': .* standard deviations from the mean of the training rows"):
        model.cluster(pl.DataFrame(np.eye(4), schema=["a", "b", "c", "d"]))
    # The fuzzer takes this for a refusal.
    with pytest.warns(UserWarning, match="valid feature names"):
        try_model(tmp_path / "the-file")


def without_best(start):
    """A change to so many finished starts, and no result of them."""

    def change(parts: Parts) -> None:
        parts.header.pop("best")
        parts.header["start"] = start
        parts.tensors = {name: value for name, value in parts.tensors.items() if not name.startswith("best.")}

    return change


STATES = {
    "a missing tensor": (without_tensor("survey.mean"), "'mean' is missing"),
    "a missing field": (without_field("survey"), "survey is missing"),
    "NaN sums": (with_value("memo.features", NAN), "memo.features holds NaN"),
    "negative variances": (with_value("survey.covariance", -1.0), "covariance holds -1"),
    "a sample of other columns": (with_array("survey.sample", lambda old: old[:, :1]), "size mismatch for covariance"),
    "bounds as text": (with_field("bounds", "high"), "bounds='high': it must be a list"),
    "a second start without a first": (with_field("start", 0), "start=0: a fit has a best result after"),
    "starts without end": (without_best(10**9), "start=1000000000: a fit has a best result"),
    "rows of 400 digits": (with_field("survey", "rows", 10**400), "more than 64 bits"),
    "a NaN parameter": (with_value("memo.parameters.theta", NAN), "theta holds NaN"),
    "a negative shape": (with_value("memo.parameters.a", -1.0), "a holds -1"),
    "no variance at all": (with_value("survey.covariance", 0.0), "survey.covariance has no positive variance"),
    "sums in single precision": (as_float32("memo.features"), "memo.features is float32: it must be float64"),
    "entropies in single precision": (as_float32("memo.entropy"), "memo.entropy is float32: it must be float64"),
    "a parameter in another precision": (
        as_float32("memo.parameters.theta"),
        r"memo.parameters are in several precisions \(float32, float64\): they must be in one",
    ),
    "a best result in single precision": (
        as_float32("best.parameters.theta"),
        "best.parameters.theta is float32: it must be float64",
    ),
    "sticks in single precision": (as_float32("best.sticks.gamma2"), "best.sticks.gamma2 is float32: it must be"),
    "a sample in single precision": (as_float32("survey.sample"), "sample is float32: it must be float64"),
}


def fit_parts(contents, covariance):
    """A state of a fit with such components, in its second start."""
    found = (parsed(content) for content in contents["fit"])
    return next(
        parts
        for parts in found
        if parts.header["settings"]["covariance"] == covariance and {"memo", "best"} <= parts.header.keys()
    )


@pytest.mark.parametrize(("change", "message"), STATES.values(), ids=STATES.keys())
def test_the_state_of_a_fit(contents, tmp_path, change, message):
    parts = fit_parts(contents, "spherical")
    change(parts)
    (tmp_path / "the-file").write_bytes(written(parts))
    fit = mixture("spherical").fit
    refused(lambda path: fit(mixture_rows(), state=path, resume=True), tmp_path / "the-file", message)


RUNS = {
    "a missing tensor": (without_tensor("model.encoder.network.0.weight"), "1 tensors are missing"),
    "a missing moment": (without_tensor("optimizer.0.exp_avg"), "1 tensors are missing: 0.exp_avg"),
    "a NaN moment": (with_value("optimizer.0.exp_avg", NAN), "0.exp_avg holds NaN"),
    "a negative square": (with_value("optimizer.0.exp_avg_sq", -1.0), "0.exp_avg_sq holds -1"),
    "a NaN weight": (with_value("best.encoder.network.0.weight", NAN), "encoder.network.0.weight holds NaN"),
    "a weight in another precision": (
        with_array("model.encoder.network.0.weight", lambda old: old.astype("f8")),
        "encoder.network.0.weight is float64: it must be float32",
    ),
    "a best weight in another precision": (
        with_array("best.encoder.network.0.weight", lambda old: old.astype("f2")),
        "encoder.network.0.weight is float16: it must be float32",
    ),
    "a moment in another precision": (
        with_array("optimizer.0.exp_avg", lambda old: old.astype("f8")),
        "0.exp_avg is float64: it must be float32",
    ),
    "no settings": (without_field("settings"), "settings is missing"),
    "settings as text": (with_field("settings", "training"), "settings='training'"),
    "no groups": (with_field("groups", []), "it holds 0 groups of weights, where 1 are expected"),
    "groups of other settings": (
        lambda parts: parts.header["groups"][0].update(betas=[2, 3]),
        "groups: betas are not those of this run",
    ),
    "a negative step": (with_field("run", "step", -1), "run.step=-1: it must be a whole number"),
    "validations of texts": (with_field("run", "validations", [["a", 1]]), "run.validations="),
    "a validation of three": (with_field("run", "validations", [[1, 2, 3]]), "a list of pairs"),
}


@pytest.mark.parametrize(("change", "message"), RUNS.values(), ids=RUNS.keys())
def test_a_run(contents, tmp_path, change, message):
    parts = parsed(contents["run"][0])
    change(parts)
    (tmp_path / "the-file").write_bytes(written(parts))
    refused(try_run, tmp_path / "the-file", message)


@pytest.mark.parametrize("seed", range(4))
def test_a_method_in_another_precision(contents, tmp_path, seed):
    parts = parsed(contents["method"][seed])
    name = next(name for name, value in parts.tensors.items() if value.dtype == np.float32 and value.ndim == 2)
    # What float32 cannot hold: a weight of it would be infinite.
    parts.tensors[name] = parts.tensors[name].astype("f8")
    parts.tensors[name][0, 0] = 1e300
    (tmp_path / "the-file").write_bytes(written(parts))
    refused(load_method, tmp_path / "the-file", f"{name.removeprefix('model.')} is float64: it must be float32")


@pytest.mark.parametrize("covariance", ["spherical", "diagonal", "full"])
def test_a_fit_that_started_on_a_device_without_float64_is_resumed(contents, tmp_path, covariance):
    parts = fit_parts(contents, covariance)
    for name in parts.tensors:
        if name.startswith("memo.parameters."):
            as_float32(name)(parts)
    (tmp_path / "the-file").write_bytes(written(parts))
    with pytest.warns(ConvergenceWarning):
        fitted = mixture(covariance).fit(mixture_rows(), state=tmp_path / "the-file", resume=True)
    assert fitted.means_.dtype == fitted.precisions_.dtype == np.float64
    saved = parsed((tmp_path / "the-file").read_bytes()).tensors
    assert {value.dtype for value in saved.values()} == {np.dtype(np.float64)}


LOADERS = [Clustering.load, MetaClusterer.load, load_model]


@pytest.mark.parametrize("load", LOADERS)
def test_a_pipe_a_device_and_a_folder_are_refused_and_not_waited_for(tmp_path, load):
    os.mkfifo(tmp_path / "pipe")
    refused(load, tmp_path / "pipe", "it is not a file but a pipe, a socket or a device; give the path of a regular")
    refused(load, Path("/dev/zero"), "it is not a file but a pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    refused(load, tmp_path / "link", "it is not a file but a pipe")
    refused(load, tmp_path, "it is not a file but a folder")


def test_what_was_loaded_does_not_depend_on_the_file_any_more(contents, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(contents["clustering"][0])
    before, again = Clustering.load(path, "cpu"), Clustering.load(path, "cpu")
    # Of a mapped file, the first touch of a value behind the new end would end the process.
    os.truncate(path, 0)
    assert np.array_equal(before.labels, again.labels)
    assert before.sizes.sum() == len(before)
    assert np.array_equal(before.representations, again.representations)
    rows = pl.DataFrame(np.zeros((2, 4)), schema=["a", "b", "c", "d"])
    assert np.array_equal(before.model.transform(rows), again.model.transform(rows))


def test_a_small_file_takes_little_memory_whatever_its_sizes_say(contents, tmp_path):
    changes = [
        with_field("config", "hidden", 2**24),
        with_field("config", "task_hidden", 2**24),
        with_field("config", "representation", 2**20),
        with_field("config", "input_shape", [2**30]),
    ]
    for number, change in enumerate(changes):
        parts = parsed(contents["model"][0])
        change(parts)
        (tmp_path / str(number)).write_bytes(written(parts))
    program = """
import resource, sys
from pathlib import Path
from metaclust import CheckpointError, load_model
size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + 2**29, size + 2**29))
for path in sys.argv[1:]:
    try:
        load_model(path, device="cpu")
    except CheckpointError as error:
        print(error)
"""
    paths = [str(path) for path in sorted(tmp_path.iterdir())]
    done = subprocess.run([sys.executable, "-c", program, *paths], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.count("size mismatch for") == len(changes)


def test_a_model_in_float64_is_loaded_as_it_was_saved(tmp_path):
    model = ClusteringModel(ModelConfig((4,), 3, 4, hidden=5)).double().eval()
    save_model(model, tmp_path / "model")
    x = torch.rand(5, 4, dtype=torch.float64)
    loaded, _ = load_model(tmp_path / "model", device="cpu")
    assert loaded.weight_dtype == torch.float64
    assert torch.equal(loaded.transform(x), model.transform(x))


def test_loading_draws_no_random_numbers(contents, tmp_path):
    (tmp_path / "file").write_bytes(contents["model"][0])
    state = torch.random.get_rng_state()
    load_model(tmp_path / "file", device="cpu")
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_full_disk_is_an_error_that_names_the_file_and_leaves_the_old_one(tmp_path):
    program = """
import resource, signal, sys
from pathlib import Path
from metaclust import ClusteringModel, ModelConfig, save_model
path = Path(sys.argv[1])
save_model(ClusteringModel(ModelConfig((4,), 3, 4, hidden=5)), path)
before = path.read_bytes()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    save_model(ClusteringModel(ModelConfig((4,), 3, 4, hidden=500)), path)
except (ValueError, OSError) as error:
    print(type(error).__name__, error)
print(path.read_bytes() == before, [one.name for one in path.parent.iterdir()])
"""
    command = [sys.executable, "-c", program, str(tmp_path / "model")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    told, after = done.stdout.splitlines()
    assert re.match(rf"CheckpointError cannot write {tmp_path}/model: .*Make room on its disk", told), told
    assert after == "True ['model']"


def test_metrics_that_are_no_records_are_left_out(contents, tmp_path):
    odd = ["7", "[]", '{"step": "x"}', "{}", json.dumps({"step": 1, "phase": "proto"})]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{line}\n" for line in odd))
    (tmp_path / "the-file").write_bytes(contents["run"][0])
    try_run(tmp_path / "the-file")
    assert (tmp_path / "metrics.jsonl").read_text() == odd[-1] + "\n"
