"""Clusters that live on: edits against a list of sets, updates, and their files."""

import json
import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from far_rows import QUICK, WIDTH, made
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from metaclust import CheckpointError, MetaClusterer
from metaclust._util.tensors import read_tensors, write_tensors
from metaclust.data.rows import DataError, DataWarning, Rows
from metaclust.inference.edits import merging, renaming
from metaclust.inference.result import Clustering
from metaclust.inference.update import continued_ids

TRAINED = {**QUICK, "choice_tasks": 60}


@pytest.fixture(scope="module")
def model():
    return MetaClusterer(**TRAINED).fit(*made(18, 25, 0))


@pytest.fixture
def result(model):
    return model.cluster(made(6, 10, 1, start=50)[0])


def together(labels):
    """Return which rows share a cluster."""
    return np.asarray(labels)[:, None] == np.asarray(labels)


def check_whole(result):
    """Check what must hold of every clustering."""
    counts = np.bincount(result.labels, minlength=result.n_clusters)
    assert len(result.names) == len(set(result.names)) == len(result.is_new) == result.n_clusters
    np.testing.assert_allclose(result.tally.counts(result.model.model_), counts, atol=1e-6)
    expected = np.zeros((result.n_clusters, result.representations.shape[1]))
    np.add.at(expected, result.labels, result.representations)
    found = result.tally.catalogue(result.model.model_, result.is_new)
    filled = counts > 0
    np.testing.assert_allclose(found.means[filled], expected[filled] / counts[filled, None], atol=1e-5)
    assert np.isfinite(result.components.means).all()
    assert result.assign(made(1, 3, 9)[0]).n_clusters == result.n_clusters


def test_each_edit_does_what_it_says(result):
    labels, names = result.labels.copy(), list(result.names)
    assert result.rename(0, "refunds") is result
    assert result.names == ["refunds", *names[1:]]
    result.merge("refunds", 2, 3)
    expected = np.where(np.isin(labels, [2, 3]), 0, labels)
    np.testing.assert_array_equal(together(result.labels), together(expected))
    assert result.names == ["refunds", names[1], *names[4:]]
    check_whole(result)
    result.split("refunds", into=3)
    assert (result.labels[np.isin(labels, [0, 2, 3])] < result.n_clusters).all()
    np.testing.assert_array_equal(together(result.labels), together(labels))
    assert len(set(result.names)) == result.n_clusters == 6
    result.move([0, 1], names[1])
    assert (result.labels[[0, 1]] == result.names.index(names[1])).all()
    assert (result.confidence[[0, 1]] == 1).all()
    result.move(["5", "6"], "a new one")
    assert result.names[-1] == "a new one"
    assert result.sizes[-1] == 2
    before = result.labels.copy()
    gone = result.names.index(names[4])
    result.dissolve(names[4])
    assert names[4] not in result.names
    np.testing.assert_array_equal(
        together(result.labels)[np.ix_(before != gone, before != gone)],
        together(before)[np.ix_(before != gone, before != gone)],
    )
    check_whole(result)
    assert [edit["kind"] for edit in result.edits] == ["rename", "merge", "split", "move", "move", "dissolve"]
    for _ in range(6):
        result.undo()
    np.testing.assert_array_equal(result.labels, labels)
    assert result.names == names
    assert result.edits == []
    with pytest.raises(DataError, match=r"^undo: there is nothing to take back"):
        result.undo()


@st.composite
def edits(draw):
    kinds = st.sampled_from(["rename", "merge", "split", "move", "move to new", "dissolve", "undo", "update"])
    return [(draw(kinds), draw(st.integers(0, 10**6))) for _ in range(draw(st.integers(1, 9)))]


@settings(max_examples=20)
@given(steps=edits())
def test_any_edits_are_those_of_a_list_of_sets(model, steps):
    result = model.cluster(made(5, 8, 1, start=50)[0])
    clusters = {name: set(np.flatnonzero(result.labels == k)) for k, name in enumerate(result.names)}
    before = []
    for number, (kind, seed) in enumerate(steps):
        generator = np.random.default_rng(seed)
        names = list(result.names)
        some = [str(name) for name in generator.permutation(names)[:2]]
        rows = generator.permutation(len(result))[:3].tolist()
        if kind == "undo":
            if not result.edits:
                continue
            result.undo()
            clusters = before.pop()
        elif kind == "update":
            continue
        else:
            then = {name: set(members) for name, members in clusters.items()}
            if kind == "rename":
                result.rename(some[0], f"name {number}")
                clusters = {f"name {number}" if n == some[0] else n: m for n, m in clusters.items()}
            elif kind == "merge" and len(names) > 1:
                result.merge(*some)
                clusters[some[0]] |= clusters.pop(some[1])
            elif kind == "split" and len(clusters[some[0]]) > 1:
                result.split(some[0])
                added = next(name for name in result.names if name not in names)
                part = set(np.flatnonzero(result.labels == result.names.index(added)))
                assert part
                assert part < clusters[some[0]]
                clusters[added] = part
                clusters[some[0]] -= part
            elif kind.startswith("move"):
                target = some[0] if kind == "move" else f"made {number}"
                result.move(rows, target)
                for members in clusters.values():
                    members -= set(rows)
                clusters.setdefault(target, set()).update(rows)
                clusters = {name: members for name, members in clusters.items() if members}
            elif kind == "dissolve" and len(names) > 1:
                loose = clusters.pop(some[0])
                result.dissolve(some[0])
                for row in loose:
                    clusters[result.names[result.labels[row]]].add(row)
            else:
                continue
            before.append(then)
        assert set(result.names) == set(clusters)
        assert all(row in clusters[result.names[label]] for row, label in enumerate(result.labels))
    check_whole(result)


def test_what_a_person_said_is_learned_from(model, result):
    x, _ = made(6, 10, 1, start=50)
    assert result.labelled() == [None] * 60
    result.rename(0, "refunds").merge(1, 2).move([59], "refunds")
    with pytest.warns(DataWarning, match=r"^'new 2': these names only number new clusters"):
        labels = result.labelled()
    for row, (label, name) in enumerate(zip(result.labels, labels, strict=True)):
        placed = row == 59 or (label in (0, 1) and not result.outlier[row])
        assert name == (result.names[label] if placed else None)
    again = model.cluster(x, **result.constraints())
    said = np.array([name is not None for name in labels])
    np.testing.assert_array_equal(np.array(again.names, object)[again.labels][said], np.array(labels, object)[said])
    background, y = made(18, 25, 0)
    taught = MetaClusterer(**TRAINED).fit(np.concatenate([background, x]), [*y, *labels])
    assert {"refunds", result.names[1]} < set(taught.categories_)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda r: r.rename(9, "a"), r"^k=9: a cluster is given by its number, 0 to 5, or by its name$"),
        (lambda r: r.rename("who", "a"), r"^k='who': no cluster has this name; names are 'new 1', "),
        (lambda r: r.rename(0, " "), r"^name=' ': give a name that is not blank$"),
        (lambda r: r.rename(0, "\ud800"), r"^name='.*': it is not valid Unicode; decode it from its own encoding$"),
        (lambda r: r.move(np.zeros(60, bool), 0), r"^rows: the mask selects no row; give one that is true for one row"),
        (lambda r: r.rename(0, "new 2"), r"^name='new 2': cluster 1 has this name already; merge the two"),
        (lambda r: r.merge(0), r"^clusters=\[0\]: give two or more different clusters to merge$"),
        (lambda r: r.merge(0, "new 1"), r"give two or more different clusters to merge$"),
        (lambda r: r.split(0, into=1), r"^into=1: give the number of parts, 2 or more$"),
        (lambda r: r.split(0, into=99), r"^into=99: cluster 0 has only \d+ rows$"),
        (lambda r: r.move([60], 0), r"^rows holds 60: give places of rows, 0 to 59, or ids as strings$"),
        (lambda r: r.move(["x"], 0), r"^rows: no row has the id 'x'$"),
        (lambda r: r.move([], 0), r"^rows=\[\]: give places or ids of rows, at least one$"),
        (lambda r: r.move(np.ones(3, bool), 0), r"^rows has shape \(3,\): a mask must have one value for each of 60"),
        (lambda r: r.move([0], True), r"^k=True: a cluster is given by its number"),
    ],
)
def test_edits_that_cannot_be_are_named_and_change_nothing(result, edit, message):
    labels, names = result.labels, list(result.names)
    with pytest.raises(DataError, match=message):
        edit(result)
    assert result.labels is labels
    assert result.names == names
    assert result.edits == []


def test_edits_of_other_types_are_named(result):
    with pytest.raises(DataError, match=r"^name=5: give a string$"):
        renaming(result.state, 0, 5)
    with pytest.raises(DataError, match=r"^clusters=\[0, 1\]: pass clusters one by one, as in merge\(0, 1\)$"):
        merging(result.state, [[0, 1]])


@pytest.mark.usefixtures("_without_type_checks")
def test_the_only_cluster_cannot_be_dissolved(model):
    one = model.cluster(made(1, 9, 2, start=50)[0])
    one.merge(*range(one.n_clusters)) if one.n_clusters > 1 else None
    with pytest.raises(DataError, match=r"^k=0: it is the only cluster, its rows have nowhere to go$"):
        one.dissolve(0)


def test_rows_that_were_only_assigned_are_not_edited(result):
    assigned = result.assign(made(2, 4, 3, start=50)[0])
    with pytest.raises(DataError, match=r"^an edit: these rows were only assigned; change the clustering they were"):
        assigned.rename(0, "a")
    with pytest.raises(DataError, match=r"^update: these rows were only assigned"):
        assigned.update(made(2, 4, 3, start=50)[0])


# Updates


def test_an_update_keeps_numbers_names_and_labels(model, result):
    x, y = (np.concatenate(both) for both in zip(made(6, 5, 5, start=50), made(2, 10, 6, start=90), strict=True))
    labels, names = result.labels.copy(), list(result.names)
    more = result.update(x)
    np.testing.assert_array_equal(result.labels, labels)
    np.testing.assert_array_equal(more.labels[:60], labels)
    assert more.names[: len(names)] == names
    assert len(more) == 110
    assert more.ids == [str(row) for row in range(110)]
    every = np.concatenate([made(6, 10, 1, start=50)[1], y])
    assert adjusted_rand_score(every, more.labels) > 0.95
    assert (more.labels[90:] >= len(names)).mean() > 0.9
    check_whole(more)
    later = more.since(60)
    np.testing.assert_array_equal(later.labels, more.labels[60:])
    assert later.ids == more.ids[60:]


def test_further_rows_may_be_of_known_categories(model, result):
    x, y = made(3, 8, 4)
    more = result.update(x)
    names = np.array(more.names)[more.labels[60:]]
    assert (names == y).mean() > 0.9
    assert not more.is_new[more.labels[60:]][names == y].any()
    assert result.update(x, known="ignore").is_new.all()


def test_labels_of_further_rows_name_clusters_old_and_new(result):
    x, _ = made(2, 8, 5, start=120)
    result.rename(1, "tea")
    labels = ["tea", *[None] * 7, "coffee", *[None] * 7]
    more = result.update(x, labels)
    assert more.names[more.labels[60]] == "tea"
    assert more.names[more.labels[68]] == "coffee"
    assert more.labelled()[60] == "tea"


def test_statistics_do_not_depend_on_how_rows_are_divided(result):
    x, _ = made(6, 6, 8, start=50)
    order = np.random.default_rng(0).permutation(len(x))
    at_once = result.update(x[order])
    chunks = result.update(iter([x[order[:12]], x[order[12:]]]))
    np.testing.assert_array_equal(at_once.labels, chunks.labels)
    np.testing.assert_allclose(at_once.tally.sums, chunks.tally.sums, atol=1e-8)
    with pytest.raises(DataError, match=r"^y: labels cannot be given with an iterator of chunks"):
        result.update(iter([x]), ["a"] * len(x))


def test_edits_hold_after_an_update_and_can_be_undone(result):
    x, _ = made(6, 4, 8, start=50)
    labels = result.labels.copy()
    result.merge(0, 1).split(2).rename("new 4", "kept")
    more = result.update(x)
    np.testing.assert_array_equal(more.labels[:60], result.labels)
    assert more.names[: result.n_clusters] == result.names
    assert [edit["kind"] for edit in more.edits] == ["merge", "split", "rename"]
    for _ in range(3):
        more.undo()
        check_whole(more)
    np.testing.assert_array_equal(more.labels[:60], labels)
    assert len(more) == 84
    assert more.edits == []


@pytest.mark.filterwarnings("ignore:.*these names only number")
def test_relabelled_rows_are_those_that_nobody_placed(result):
    result.move([0, 1, 2], int(result.labels[40])).rename(3, "mine")
    placed = np.array([name is not None for name in result.labelled()])
    more = result.update(made(6, 10, 11, start=50)[0], relabel=True)
    np.testing.assert_array_equal(more.labels[:60][placed], result.labels[placed])
    assert more.edits == []
    assert more.labelled()[:60] == result.labelled()
    check_whole(more)


def test_ids_go_on():
    assert continued_ids(["a"], ["b"]) == ["a", "b"]
    assert continued_ids(["a", "2"], ["0"]) == ["a", "2", "3"]
    assert continued_ids(["0", "1"], ["0", "1"]) == ["0", "1", "2", "3"]


# Files


@pytest.fixture
def edited(result):
    return result.merge(0, 1).split(2).move([3, 4], "by hand").rename("by hand", "refunds")


def test_a_saved_clustering_lives_on_in_another_process(edited, tmp_path):
    x, _ = made(7, 5, 12, start=50)
    edited.save(tmp_path / "clusters")
    np.save(tmp_path / "x.npy", x)
    program = (
        "import json, sys, numpy as np; from metaclust import Clustering\n"
        "one = Clustering.load(sys.argv[1] + '/clusters'); more = one.update(np.load(sys.argv[1] + '/x.npy'))\n"
        "names, edits = list(more.names), more.edits; labels = more.labels.tolist(); more.undo().undo()\n"
        "print(json.dumps([labels, names, edits, more.labels.tolist(), more.names]))"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    labels, names, history, undone, old_names = json.loads(done.stdout.splitlines()[-1])
    more = edited.update(x)
    assert (labels, names, history) == (more.labels.tolist(), more.names, more.edits)
    more.undo().undo()
    assert (undone, old_names) == (more.labels.tolist(), more.names)


@pytest.mark.filterwarnings("ignore:.*these names only number")
def test_a_file_holds_everything(edited, tmp_path):
    edited.save(tmp_path / "clusters")
    loaded = Clustering.load(tmp_path / "clusters")
    for name in ("labels", "confidence", "novelty", "outlier_probability", "is_new"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(edited, name))
    assert loaded.names == edited.names
    assert loaded.labelled() == edited.labelled()
    assert loaded.edits == edited.edits
    check_whole(loaded)


def damaged(path, change):
    """Write the file again with something changed."""
    tensors, header = read_tensors(path, "clustering")
    change(tensors, header)
    write_tensors(path, tensors, header)


def set_to(name, value):
    def change(tensors, header):
        tensors[name] = value(tensors[name])

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, h: h["living"]["names"].pop(), "living.names"),
        (lambda t, h: h["living"].update(names=["a"] * len(h["living"]["names"])), "a name of its own"),
        (lambda t, h: h["living"].update(free=0), "keys of clusters must rise, and be below 0"),
        (lambda t, h: h["living"].update(factor=-1), "living.factor=-1"),
        (lambda t, h: h["living"]["edits"][0].update(kind="eval"), r"living.edits\[0\].kind='eval'"),
        (lambda t, h: h["living"]["edits"][2].update(made=[[1, 2, 3]]), "made.name=2: it must be a string"),
        (lambda t, h: h["living"].pop("found"), "living"),
        (lambda t, h: t.pop("living.tally.sums"), "the tensor 'tally.sums' is missing"),
        (set_to("living.edits.2.rows", lambda value: value + 1000), "edits.2.rows"),
        (set_to("living.novelty", lambda value: value + 2), "novelty"),
        (set_to("living.found.labels", lambda value: value + 100), "labels"),
        (set_to("living.fixed", lambda value: value.long()), "fixed"),
    ],
)
def test_a_damaged_file_is_refused(edited, change, message, tmp_path):
    edited.save(tmp_path / "clusters")
    damaged(tmp_path / "clusters", change)
    with pytest.raises(CheckpointError, match=message):
        Clustering.load(tmp_path / "clusters")


# Updates after corrections, and what is said twice


def test_what_was_renamed_does_not_come_back_under_its_old_name(model):
    x, y = (np.concatenate(both) for both in zip(made(4, 12, 1), made(3, 12, 2, start=50), strict=True))
    result = model.cluster(x)
    first = result.names[result.labels[0]]
    assert first in model.categories_
    result.rename(first, "money back")
    more = result.update(made(4, 8, 3)[0])
    assert first not in more.names
    assert (np.array(more.names)[more.labels[84:92]] == "money back").all()
    assert result.update(made(4, 8, 3)[0], known="ignore").n_clusters == result.n_clusters
    assert y[0] == first


@pytest.mark.parametrize("choose", ["bound", "auto"])
def test_rows_that_were_there_go_where_they_were(choose, model):
    other = model if choose == "auto" else MetaClusterer(**{**TRAINED, "choose": "bound"}).fit(*made(18, 25, 0))
    x, _ = made(6, 10, 1, start=50)
    result = other.cluster(x)
    more = result.update(x)
    assert more.n_clusters == result.n_clusters
    assert (more.labels[60:] == result.labels).mean() > 0.95


def test_links_hold_where_rows_may_move(model):
    x, _ = made(6, 10, 1, start=50)
    must, cannot = [[0, 10], [20, 31]], [[1, 2]]
    result = model.cluster(x, must_link=must, cannot_link=cannot)
    more = result.update(made(2, 6, 5, start=50)[0], relabel=True)
    assert all(more.labels[one] == more.labels[two] for one, two in must)
    assert all(more.labels[one] != more.labels[two] for one, two in cannot)
    check_whole(more)


def test_names_that_come_back_are_told_apart(result, tmp_path):
    old = result.names[0]
    result.rename(0, "b")
    more = result.update(made(1, 10, 4, start=99)[0], [old] * 10)
    assert more.names.count(old) == 1
    more.undo()
    assert len(set(more.names)) == more.n_clusters
    more.save(tmp_path / "clusters")
    assert Clustering.load(tmp_path / "clusters").names == more.names


def test_labels_may_need_more_clusters_than_allowed(model):
    x, _ = made(6, 10, 1, start=50)
    labels: list[str | None] = [None] * 60
    labels[0], labels[10], labels[1], labels[20] = "A", "B", "C", "D"
    found = model.cluster(x, labels, max_clusters=2)
    assert {found.names[found.labels[row]] for row in (0, 10, 1, 20)} == set("ABCD")
    apart = model.cluster(x, cannot_link=[[0, 1]], max_clusters=1)
    assert apart.labels[0] != apart.labels[1]


def test_rows_of_a_dissolved_cluster_are_placed_by_nobody(model):
    x, _ = made(6, 10, 1, start=50)
    result = model.cluster(x).move([0, 1], "B").dissolve("B")
    assert result.labelled()[:2] == [None, None]
    at = result.components.placed(result.representations[:2], result.labels[:2])
    np.testing.assert_allclose(result.confidence[:2], at.probability)


def test_the_later_word_counts(model):
    x, _ = made(6, 10, 1, start=50)
    result = model.cluster(x, must_link=[[0, 1]], cannot_link=[[2, 30]])
    result.move([0], "A").move([1], "B").rename(int(result.labels[2]), "C").merge("C", int(result.labels[30]))
    said = result.constraints()
    assert said["must_link"] == said["cannot_link"] == []
    again = model.cluster(x, **said)
    assert again.labels[0] != again.labels[1]


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h["edits"][1].update(made=[[7, "x", 7]]),
        lambda h: h["edits"][3].update(key=999),
        lambda h: h["edits"][0].update(gone=[999]),
        lambda h: h["edits"][0].update(gone=[h["edits"][0]["key"]]),
        lambda h: h["edits"][1].update(made=[[0, "x", 0]]),
        lambda h: h["edits"][2]["made"].append([h["free"] - 1, "y", 0]),
        lambda h: h["edits"][0].update(kind="dissolve"),
        lambda h: h.update(factor=0),
    ],
)
def test_edits_that_lead_nowhere_are_refused(edited, change, tmp_path):
    edited.save(tmp_path / "clusters")
    damaged(tmp_path / "clusters", lambda tensors, header: change(header["living"]))
    with pytest.raises(CheckpointError, match="living"):
        Clustering.load(tmp_path / "clusters")


def test_rows_one_by_one_go_where_they_go_together(model):
    x, _ = made(5, 12, 1, start=50)
    result = model.cluster(x)
    one = model.cluster(x)
    more, _ = made(5, 3, 9, start=50)
    for row in more:
        one = one.update(row[None])
    assert one.n_clusters == result.n_clusters
    np.testing.assert_array_equal(one.labels[len(x) :], result.labels[np.arange(5) * 12].repeat(3))
    assert (one.outlier_probability[len(x) :] < 0.5).all()


def test_a_row_that_is_far_from_all_others_is_seen_alone(model):
    x, _ = made(5, 12, 1, start=50)
    result = model.cluster(x)
    far = np.full((1, WIDTH), 60, np.float32) * np.array([1, -1, 1, -1, 1, -1], np.float32)
    updated = result.update(far)
    assert updated.outlier_probability[-1] > updated.outlier_probability[:-1].max()
    assert updated.outlier_probability[-1] > 0.5


def test_labels_of_few_further_rows_hold_beside_rows_that_were_there(model):
    x, _ = made(5, 12, 1, start=50)
    result = model.cluster(x)
    names = list(result.names)
    more, _ = made(2, 2, 9, start=50)
    updated = result.update(more, [names[3], None, "refunds", None])
    assert updated.names[updated.labels[-4]] == names[3]
    assert updated.names[updated.labels[-2]] == "refunds"
    np.testing.assert_array_equal(updated.labels[: len(x)], result.labels)
    assert updated.names[: len(names)] == names


# Corrections and updates in any order


LIVES = ("rename", "merge", "split", "move", "move to new", "move all", "dissolve", "undo", "update", "label", "load")


@st.composite
def lives(draw):
    return [(draw(st.sampled_from(LIVES)), draw(st.integers(0, 10**6))) for _ in range(draw(st.integers(2, 9)))]


def edited_at_random(result, kind, number, generator):
    """Change a clustering; returns whether there was something to change."""
    names = [str(name) for name in generator.permutation(result.names)]
    mine = np.flatnonzero(result.labels == result.names.index(names[0]))
    if kind == "rename":
        result.rename(names[0], f"name {number}")
    elif kind == "merge" and len(names) > 1:
        result.merge(*names[:2])
    elif kind == "split" and len(mine) > 1:
        result.split(names[0])
    elif kind == "move":
        result.move(generator.permutation(len(result))[:3], names[0])
    elif kind == "move to new":
        result.move(generator.permutation(len(result))[:3], f"made {number}")
    elif kind == "move all" and len(names) > 1:
        result.move(mine, names[1])
    elif kind == "dissolve" and len(names) > 1:
        result.dissolve(names[0])
    else:
        return False
    return True


@settings(max_examples=12)
@given(steps=lives())
@pytest.mark.filterwarnings("ignore:.*these names only number")
def test_a_clustering_stays_whole_whatever_is_done(model, tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("life") / "clusters"
    result = model.cluster(made(5, 8, 1, start=50)[0])
    names_of, labelled = [], {}
    for number, (kind, seed) in enumerate(steps):
        generator = np.random.default_rng(seed)
        before = [result.names[label] for label in result.labels]
        if kind == "undo":
            if result.edits:
                result.undo()
                then = names_of.pop()
                assert [result.names[label] for label in result.labels][: len(then)] == then
        elif kind in ("update", "label"):
            labels = None
            if kind == "label":
                labels = [str(generator.choice([*result.names, "new 2", f"said {number}", "c3"])), *[None] * 5]
                labelled[len(result)] = labels[0]
            old, count = result.labels, len(result)
            result = result.update(made(2, 3, seed, start=int(generator.integers(48, 56)))[0], labels)
            np.testing.assert_array_equal(result.labels[:count], old)
            assert labels is None or result.names[result.labels[count]] == labels[0]
        elif kind == "load":
            result.save(path)
            result = Clustering.load(path)
            result.model.set_params(progress=False)
        elif edited_at_random(result, kind, number, generator):
            names_of.append(before)
        assert (result.sizes > 0).all()
        check_whole(result)
        result.save(path)
        loaded = Clustering.load(path)
        assert (loaded.names, loaded.edits, loaded.labelled()) == (result.names, result.edits, result.labelled())
        np.testing.assert_array_equal(loaded.labels, result.labels)
        if not result.edits:
            # Nobody has said anything but the labels that came with rows.
            assert {row: name for row, name in enumerate(result.labelled()) if name is not None} == labelled


def test_an_undo_between_updates_leaves_a_file_that_loads(result, tmp_path):
    x, _ = made(6, 10, 1, start=50)
    labels = result.labels.copy()
    result.move(np.flatnonzero(labels == 0)[:7], "A").move(np.flatnonzero(labels == 2)[:7], "B")
    more = result.update(np.concatenate([x[labels == 2], x[labels == 0]]))
    assert {edit.kind for edit in more.history.edits} == {"move", "add"}
    more.undo()
    more.save(tmp_path / "clusters")
    loaded = Clustering.load(tmp_path / "clusters").undo()
    np.testing.assert_array_equal(loaded.labels[:60], labels)


def test_a_file_that_could_not_be_read_is_not_written(edited, tmp_path):
    wrong = replace(edited.history, edits=edited.history.edits[:1])
    with pytest.raises(ValueError, match=r"^living.keys: they are not those that the edits lead to$"):
        replace(edited, history=wrong).save(tmp_path / "clusters")
    assert not (tmp_path / "clusters").exists()


def test_files_of_earlier_versions_are_read(edited, tmp_path):
    edited.save(tmp_path / "clusters")

    def as_before(tensors, header):
        for name in ("labels", "retired"):
            header["living"].pop(name)
        for edit in header["living"]["edits"]:
            edit.pop("seen")

    damaged(tmp_path / "clusters", as_before)
    loaded = Clustering.load(tmp_path / "clusters")
    assert loaded.edits == edited.edits
    more = loaded.update(made(6, 3, 12, start=50)[0]).undo().undo().undo().undo()
    assert more.edits == []
    assert more.n_clusters == 6


@pytest.mark.parametrize("relabel", [False, True])
def test_a_merge_holds_for_rows_that_come_later(result, relabel, tmp_path):
    _, y = made(6, 10, 1, start=50)
    first, second = (result.names[result.labels[row]] for row in (0, 10))
    result.merge(first, second).rename(first, "both")
    for seed in (5, 6):
        result = result.update(made(6, 8, seed, start=50)[0], relabel=relabel)
        result.save(tmp_path / "clusters")
        result = Clustering.load(tmp_path / "clusters")
    both = np.array(result.names)[result.labels[60:]] == "both"
    further = np.concatenate([made(6, 8, seed, start=50)[1] for seed in (5, 6)])
    assert (both == np.isin(further, [y[0], y[10]])).all()
    assert result.n_clusters == 5
    if not relabel:
        # Each row goes back to the part that it was recognised as.
        result.undo().undo()
        assert adjusted_rand_score(further, result.labels[60:]) == 1


def test_a_known_category_that_was_merged_stays_where_it_is(model):
    result = model.cluster(np.concatenate([made(2, 10, 1)[0], made(2, 10, 1, start=50)[0]]))
    assert {"c0", "c1"} < set(result.names)
    result.merge("c0", "c1")
    for relabel in (False, True):
        more = result.update(made(2, 8, 5)[0], relabel=relabel).update(made(2, 8, 6)[0])
        assert "c1" not in more.names
        assert (np.array(more.names)[more.labels[40:]] == "c0").all()


def test_names_are_not_forgotten_where_rows_may_move(model, tmp_path):
    result = model.cluster(np.concatenate([made(2, 10, 1)[0], made(2, 10, 1, start=50)[0]]))
    result.rename("c0", "money back")
    more = result.update(made(1, 4, 5)[0], relabel=True)
    more.save(tmp_path / "clusters")
    more = Clustering.load(tmp_path / "clusters").update(made(1, 12, 6)[0])
    assert "c0" not in more.names
    assert (np.array(more.names)[more.labels[44:]] == "money back").all()


@pytest.mark.parametrize(
    ("must", "cannot", "moves"),
    [
        ([[0, 1]], [], [([0], "P"), ([1], "Q")]),
        ([[0, 1], [1, 2]], [], [([0], "P"), ([2], "Q")]),
        ([[0, 1]], [[1, 2]], [([0, 2], "P")]),
    ],
)
@pytest.mark.filterwarnings("ignore:.*these names only number")
def test_corrections_count_more_than_links(model, must, cannot, moves):
    x, _ = made(6, 10, 1, start=50)
    result = model.cluster(x, must_link=must, cannot_link=cannot)
    for rows, name in moves:
        result.move(rows, name)
    again = model.cluster(x, **result.constraints())
    more = result.update(x[:5], relabel=True)
    for found in (again, more):
        for rows, name in moves:
            assert {found.names[found.labels[row]] for row in rows} == {name}


@pytest.mark.filterwarnings("ignore:.*these names only number")
def test_rows_that_came_later_are_placed_by_nobody(result):
    x, _ = made(6, 10, 1, start=50)
    result.rename(0, "refunds").merge("refunds", 1).split("refunds")
    more = result.update(x).update(x, relabel=True)
    assert more.labelled()[60:] == [None] * 120
    dissolved = result.update(x)
    rows = dissolved.labels == dissolved.names.index("new 3")
    dissolved.rename(dissolved.names[-1], "late").dissolve("new 3")
    assert not np.array([name is not None for name in dissolved.labelled()])[rows].any()


def test_a_label_says_what_it_said_when_its_cluster_is_undone(result):
    x, _ = made(6, 10, 1, start=50)
    rows = np.flatnonzero(result.labels == 0)
    result.move(rows[:5], "late parcel")
    more = result.update(x[rows[:3]], ["late parcel"] * 3).undo()
    assert more.labelled() == [None] * 60 + ["late parcel"] * 3
    assert more.names[-1] == "late parcel"
    check_whole(more)


def test_a_name_that_comes_back_is_one_cluster(result):
    old = result.names[0]
    more = result.rename(0, "tmp").update(made(1, 3, 4, start=99)[0], [old] * 3)
    assert more.n_clusters == 7
    more.undo()
    assert more.n_clusters == 6
    assert (more.labels[60:] == 0).all()
    with pytest.warns(DataWarning, match="'new 1': these names only number new clusters"):
        assert more.labelled()[60:] == [old] * 3
    more.rename(0, "again").undo()
    assert more.names[0] == old


def test_a_number_is_no_category(model):
    background, y = made(18, 25, 0)
    x = made(2, 25, 1, start=60)[0]
    other = MetaClusterer(**TRAINED).fit(np.concatenate([background, x]), [*y, *["new 1"] * 25, *["new 2"] * 25])
    found = other.cluster(made(3, 10, 2, start=80)[0], known="ignore")
    assert found.is_new.all()
    found.split(0)
    assert found.is_new.all()
    assert not {"new 1", "new 2"} & set(found.names)


def test_rows_with_an_id_that_is_there_are_left_out(model):
    x, _ = made(6, 10, 1, start=50)
    ids = [f"t{row}" for row in range(60)]
    result = model.cluster(Rows("vectors", x, ids))
    with pytest.warns(DataWarning, match=r"^the rows: 60 of 60 rows are in the clustering already, .*: 't0', 't1'"):
        assert len(result.update(Rows("vectors", x, ids))) == 60
    further = Rows("vectors", x[:3], ["t4", "t60", "t61"])
    with pytest.warns(DataWarning, match=r"1 of 3 rows .* Their labels are left out, too: correct rows by move$"):
        more = result.update(further, ["a", "b", None])
    assert more.ids[60:] == ["t60", "t61"]
    assert more.labelled()[60:] == ["b", None]
    assert len(result.update(further, again=True)) == 63
    # Numbers of rows say nothing.
    assert len(model.cluster(x).update(x)) == 120


def test_an_id_of_several_rows_is_refused(model):
    x, _ = made(6, 10, 1, start=50)
    result = model.cluster(Rows("vectors", x, ["a", *"bcdef" * 10, *"uvwxyzmno"]))
    with pytest.raises(DataError, match=r"^rows: id 'b' is of several rows, 1 and 6 among them: give places$"):
        result.move(["a", "b"], 0)
    assert result.move(["a", "o"], 0).labels[59] == 0


def test_labels_that_rows_bring_along_are_used(model):
    x, _ = made(6, 10, 1, start=50)
    rows = Rows("vectors", x, [str(row) for row in range(60)], partial=["tea", *[""] * 59])
    result = model.cluster(rows)
    assert result.names[result.labels[0]] == "tea"
    more = result.update(replace(rows, partial=["coffee", *[""] * 59]))
    assert more.names[more.labels[60]] == "coffee"
    assert model.cluster(rows, ["milk", *[None] * 59]).names.count("tea") == 0


@pytest.mark.usefixtures("_without_type_checks")
def test_names_and_ids_are_not_changed_in_place(result, tmp_path):
    for change in (
        lambda values: values.append("a"),
        lambda values: values.__setitem__(0, "a"),
        lambda values: values.clear(),
        lambda values: values.sort(),
    ):
        with pytest.raises(TypeError, match=r"^the names of a clustering cannot be changed in place: use rename$"):
            change(result.names)
        with pytest.raises(TypeError, match=r"^the ids of a clustering"):
            change(result.ids)
    again = pickle.loads(pickle.dumps(result))  # noqa: S301
    assert again.names == result.names == list(result.names)
    for found in (again, again.rename(0, "a")):
        with pytest.raises(ValueError, match="read-only"):
            found.labels[0] = 1
        with pytest.raises(TypeError, match="use rename"):
            found.names.append("b")


def test_rows_of_merged_clusters_are_as_new_as_the_cluster(model):
    result = model.cluster(np.concatenate([made(2, 10, 1)[0], made(2, 10, 1, start=50)[0]]))
    rows = result.labels == result.labels[20]
    result.merge("c0", int(result.labels[20]))
    assert not result.is_new[result.labels[rows]].any()
    assert (result.novelty[rows] == 0).all()


def test_rows_that_are_alike_are_not_divided(model):
    x = np.concatenate([made(3, 10, 1, start=50)[0], np.repeat(made(1, 1, 1, start=60)[0], 9, 0)])
    result = model.cluster(x)
    with pytest.raises(DataError, match=r"^into=2: cluster \d cannot be divided so, its rows are all alike$"):
        result.split(int(result.labels[-1]))


@pytest.mark.usefixtures("_without_type_checks")
def test_further_rows_that_do_not_fit_are_named(model, result):
    with pytest.raises(
        DataError, match=r"^update: Found array with 0 sample.*; give further rows, at least one, of the"
    ):
        result.update(np.empty((0, 6)))
    with pytest.raises(DataError, match=r"^update: X has 9 features.*; give further rows, at least one, of the form"):
        result.update(np.zeros((3, 9)))


def test_a_list_of_chunks_is_taken_as_chunks(result):
    x, _ = made(6, 6, 8, start=50)
    one, other = result.update([x[:12], x[12:]]), result.update(iter([x[:12], x[12:]]))
    np.testing.assert_array_equal(one.labels, other.labels)
    with pytest.raises(DataError, match=r"^y: labels cannot be given with an iterator of chunks"):
        result.update([x], ["a"] * len(x))


def test_what_clusters_were_found_with_holds_for_updates(model):
    x, _ = made(4, 10, 1, start=50)
    for known in ("ignore", "use"):
        result = model.cluster(x, known=known)
        further = made(3, 10, 4)[0]
        same, other = result.update(further), result.update(further, known=known)
        assert same.names == other.names
        np.testing.assert_array_equal(same.confidence, other.confidence)
