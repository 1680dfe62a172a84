"""One suite for every landmark index and every snapshot, with a plain product over all landmarks as the oracle."""

from pathlib import Path

import numpy as np
import pytest
import torch

from retrieval.errors import InvalidRequest
from retrieval.index.exact import ExactLandmarkIndex, VisibleLandmarks, products
from retrieval.index.faiss import FaissLandmarkIndex
from retrieval.index.mapped import Contents, LandmarkFile, MappedLandmarkIndex, write_landmark_file
from retrieval.index.snapshot import AUTO_MAPPED_BLOCKS

ROOT = Path(__file__).resolve().parents[3]
LAYERS, GROUPS, WIDTH = (1, 2, 5), 2, 8


class WrittenLandmarks:
    """A mapped index whose blocks go into a new file after every second change, so that file and RAM both hold some."""

    def __init__(self, folder):
        self._index, self._path, self._changes = MappedLandmarkIndex(LAYERS, GROUPS, WIDTH), folder / "map", 0

    def __getattr__(self, name):
        return getattr(self._index, name)

    def add(self, ids, landmarks):
        self._index.add(ids, landmarks)
        self._changes += 1
        if self._changes % 2:
            file = written(self._path, self._index)
            self._index = MappedLandmarkIndex(LAYERS, GROUPS, WIDTH, file=file)


def written(path, index) -> LandmarkFile:
    snapshot, none = index.snapshot(), np.zeros(len(index.ids))
    landmarks = torch.stack([snapshot.landmarks(layer).transpose(0, 1) for layer in LAYERS], 1).flatten(1)
    names = ("shard", "row", "length", "document", "ordinal", "shard_ids", "shard_first", "shard_blocks")
    tables = {"ids": index.ids} | {name: none for name in names}
    numbers = len(LAYERS) * GROUPS * WIDTH
    contents = Contents(numbers, torch.float32, lambda a, b: landmarks[a:b], tables, [], [])
    write_landmark_file(path, contents, fingerprint="model", mark="7")
    return LandmarkFile(path)


KINDS = ("exact", "mapped", "written", "faiss")


def new_index(kind: str, folder: Path):
    if kind == "written":
        return WrittenLandmarks(folder)
    makers = {"exact": ExactLandmarkIndex, "mapped": MappedLandmarkIndex, "faiss": FaissLandmarkIndex}
    return makers[kind](LAYERS, GROUPS, WIDTH)


@pytest.fixture(params=KINDS)
def index(request, tmp_path):
    return new_index(request.param, tmp_path)


@pytest.fixture(params=[*KINDS, "visible in exact", "visible in written", "visible in faiss"])
def snapshot_of(request, tmp_path):
    """`snapshot_of(landmarks)`: of just these blocks, or of these among others that who asks may not see."""
    index = new_index(request.param.split()[-1], tmp_path)

    def snapshot(landmarks_NYGD):
        count = len(landmarks_NYGD)
        if not request.param.startswith("visible"):
            index.add(np.arange(count), landmarks_NYGD)
            return index.snapshot()
        mixed, visible = landmarks_of(2 * count + 3, seed=77), torch.arange(count) * 2 + 1
        mixed[visible] = landmarks_NYGD
        index.add(np.arange(len(mixed)), mixed)
        return VisibleLandmarks(index.snapshot(), visible, LAYERS)

    return snapshot


def landmarks_of(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, len(LAYERS), GROUPS, WIDTH, generator=torch.Generator().manual_seed(seed))


def by_hand(landmarks_NYGD: torch.Tensor, query_YGD: torch.Tensor) -> torch.Tensor:
    return torch.einsum("nygd,ygd->n", landmarks_NYGD.double(), query_YGD.double())


def test_the_best_blocks_are_those_with_the_largest_inner_product(snapshot_of):
    landmarks, query = landmarks_of(300), landmarks_of(1, seed=9)[0]
    snapshot = snapshot_of(landmarks)
    ranking = snapshot.rank(query, 10)
    logits = by_hand(landmarks, query)
    assert ranking.indices.tolist() == logits.argsort(descending=True)[:10].tolist()
    torch.testing.assert_close(ranking.logits.double(), logits[ranking.indices], atol=1e-4, rtol=0)
    assert (ranking.mean, ranking.spread) == pytest.approx((float(logits.mean()), float(logits.std())), rel=1e-2)
    torch.testing.assert_close(ranking.gates.double(), logits.softmax(0)[ranking.indices], atol=1e-5, rtol=1e-4)


def test_logits_of_half_precision_landmarks_are_summed_unrounded():
    query, landmarks = torch.randn(1, 2, 8), torch.randn(1, 2, 50, 8).bfloat16()
    wanted = torch.einsum("ygd,ygnd->n", query.bfloat16().double(), landmarks.double())
    torch.testing.assert_close(products(query, landmarks).double(), wanted, atol=1e-5, rtol=1e-5)


def test_blocks_out_of_scope_are_never_found_and_take_no_share(snapshot_of):
    landmarks, query = landmarks_of(50), landmarks_of(1, seed=9)[0]
    snapshot = snapshot_of(landmarks)
    within = torch.tensor([3, 7, 8, 20, 41])
    ranking = snapshot.rank(query, 50, within)
    assert sorted(ranking.indices.tolist()) == within.tolist()
    assert float(ranking.gates.sum()) == pytest.approx(1.0, abs=1e-5)


def test_of_equal_blocks_the_newest_comes_first(snapshot_of):
    snapshot = snapshot_of(landmarks_of(1).expand(6, -1, -1, -1))
    assert snapshot.rank(landmarks_of(1)[0], 4).indices.tolist() == [5, 4, 3, 2]


def test_blocks_added_in_pieces_and_out_of_order_stand_in_the_order_of_their_ids(index):
    landmarks, query = landmarks_of(40), landmarks_of(1, seed=9)[0]
    for piece in (slice(10, 20), slice(30, 40), slice(0, 10), slice(20, 30)):
        index.add(np.arange(100, 140)[piece], landmarks[piece])
    assert index.ids.tolist() == list(range(100, 140))
    assert (
        index.snapshot().rank(query, 40).indices.tolist() == by_hand(landmarks, query).argsort(descending=True).tolist()
    )


def test_removed_blocks_are_gone_and_the_rest_keep_their_order(index):
    landmarks, query = landmarks_of(40), landmarks_of(1, seed=9)[0]
    index.add(np.arange(40), landmarks)
    index.remove(np.array([0, 5, 39, 77]))
    kept = [n for n in range(40) if n not in (0, 5, 39)]
    assert index.ids.tolist() == kept
    expected = by_hand(landmarks[kept], query).argsort(descending=True).tolist()
    assert index.snapshot().rank(query, 40).indices.tolist() == expected


def test_a_snapshot_does_not_see_later_additions_or_removals(index):
    landmarks, query = landmarks_of(30), landmarks_of(1, seed=9)[0]
    index.add(np.arange(20), landmarks[:20])
    snapshot = index.snapshot()
    before = snapshot.landmarks(LAYERS[1]).clone()
    index.add(np.arange(20, 30), landmarks[20:])
    index.add(np.array([-1]), landmarks_of(1, seed=3))
    assert snapshot.num_blocks == 20
    assert set(snapshot.rank(query, 30).indices.tolist()) == set(range(20))
    index.remove(np.arange(5))
    torch.testing.assert_close(snapshot.landmarks(LAYERS[1]), before, rtol=0, atol=0)


def test_an_empty_index_finds_nothing(snapshot_of):
    assert snapshot_of(landmarks_of(0)).rank(landmarks_of(1)[0], 5).indices.tolist() == []


def test_landmarks_come_back_layer_by_layer_as_they_were_added(snapshot_of):
    landmarks = landmarks_of(10)
    snapshot = snapshot_of(landmarks)
    for y, layer in enumerate(LAYERS):
        torch.testing.assert_close(snapshot.landmarks(layer), landmarks[:, y].transpose(0, 1), rtol=0, atol=0)
        torch.testing.assert_close(
            snapshot.landmarks(layer, torch.tensor([2, 7])),
            landmarks[[2, 7], y].transpose(0, 1),
            rtol=0,
            atol=0,
        )


def test_an_approximate_faiss_index_finds_most_of_what_the_exact_one_finds():
    landmarks, query = landmarks_of(2000), landmarks_of(1, seed=9)[0]
    exact = ExactLandmarkIndex(LAYERS, GROUPS, WIDTH)
    rough = FaissLandmarkIndex(LAYERS, GROUPS, WIDTH, factory="IVF16,SQ8", probes=8)
    for each in (exact, rough):
        each.add(np.arange(2000), landmarks)
    found, right = (set(each.snapshot().rank(query, 20).indices.tolist()) for each in (rough, exact))
    assert len(found & right) >= 12


def test_an_unknown_faiss_kind_is_refused_when_the_library_is_opened():
    with pytest.raises(InvalidRequest, match="FAISS does not know"):
        FaissLandmarkIndex(LAYERS, GROUPS, WIDTH, factory="Nonsense7")


def test_a_faiss_kind_that_needs_more_blocks_to_be_trained_says_so():
    index = FaissLandmarkIndex(LAYERS, GROUPS, WIDTH, factory="IVF64,Flat")
    index.add(np.arange(10), landmarks_of(10))
    with pytest.raises(InvalidRequest, match="at least 64 blocks"):
        index.snapshot().rank(landmarks_of(1)[0], 3)


def test_the_size_at_which_the_index_changes_by_itself_is_the_documented_one():
    pages = (ROOT / "docs" / "settings.md", *(ROOT / "docs" / "decisions").glob("0048-*.md"))
    assert len(pages) == 2 and all(f"{AUTO_MAPPED_BLOCKS:,} blocks" in page.read_text() for page in pages)


@pytest.mark.parametrize("like", ["keys", "directions", "equal"])
def test_codes_with_their_bounds_find_exactly_what_the_keys_find(tmp_path, like):
    """Many blocks, also such that differ by less than a code, and queries that are nothing like keys."""
    landmarks = landmarks_of(3000)
    if like == "equal":
        landmarks = landmarks[:30].repeat(100, 1, 1, 1) + 1e-4 * landmarks
    index = MappedLandmarkIndex(LAYERS, GROUPS, WIDTH)
    index.add(np.arange(len(landmarks)), landmarks)
    file = written(tmp_path / "map", index)
    mapped = MappedLandmarkIndex(LAYERS, GROUPS, WIDTH, file=file)
    exact = ExactLandmarkIndex(LAYERS, GROUPS, WIDTH)
    exact.add(np.arange(len(landmarks)), landmarks)
    for seed in range(5):
        query = landmarks[seed] if like != "directions" else 100 * landmarks_of(1, seed=50 + seed)[0]
        mine, theirs = mapped.snapshot().rank(query, 32), exact.snapshot().rank(query, 32)
        torch.testing.assert_close(mine.logits, theirs.logits, atol=1e-4 * float(query.norm()), rtol=0)
        worst = float(theirs.logits[-1]) - 1e-4 * float(query.norm())
        assert bool((by_hand(landmarks, query)[mine.indices] >= worst).all()), "ties may change places, nothing else"
        assert abs(mine.log_total - theirs.log_total) < 0.02 * float(query.norm())


def test_what_is_far_from_the_best_is_not_looked_at_by_its_keys(tmp_path):
    index = MappedLandmarkIndex(LAYERS, GROUPS, WIDTH)
    index.add(np.arange(3000), landmarks_of(3000))
    file = written(tmp_path / "map", index)
    looked: list[int] = []
    keys = file.keys
    file.keys = lambda slots: looked.append(len(slots)) or keys(slots)  # type: ignore[method-assign]
    MappedLandmarkIndex(LAYERS, GROUPS, WIDTH, file=file).snapshot().rank(landmarks_of(1, seed=9)[0], 10)
    assert 10 <= sum(looked) < 100
