"""The segment plan refuses what no backend could mean; the tile list says what the plan says."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ralm_kernels import SegmentPlan
from ralm_kernels.reference import visibility_mask
from ralm_kernels.tiles import OWN, tile_work


@st.composite
def plans(draw, max_length: int = 24) -> SegmentPlan:
    """Ragged segments; some see what the one before them sees, others any disjoint ranges."""
    lengths = draw(st.lists(st.integers(0, max_length), max_size=7))
    visible: list[list[tuple[int, int]]] = []
    at = 0
    for length in lengths:
        if visible and draw(st.booleans()):
            visible.append(visible[-1])
        else:
            cuts = sorted(draw(st.lists(st.integers(0, at), max_size=6)))
            pairs = list(zip(cuts[::2], cuts[1::2], strict=False))
            visible.append(draw(st.permutations(pairs)))
        at += length
    return SegmentPlan.from_lists(lengths, visible)


@settings(max_examples=60, deadline=None)
@given(plans())
def test_pairs_are_counted_as_the_mask_has_them(plan):
    """Fails when the FLOP estimate counts another set of pairs than attention computes."""
    assert plan.num_pairs == int(visibility_mask(plan).sum())


@settings(max_examples=60, deadline=None)
@given(plans(), st.integers(1, 24), st.sampled_from([1, 4, 16]))
def test_tiles_show_exactly_what_the_plan_shows(plan, tile_tokens, block_keys):
    """Fails when a tile misses a key, shows one twice, or shows one that the plan hides."""
    work = tile_work(plan, tile_tokens=tile_tokens, block_keys=block_keys)
    seen = np.zeros((plan.num_tokens, plan.num_tokens), dtype=np.int64)
    key = np.arange(plan.num_tokens)
    for begin, end, full_first, full_last, first, last in work.tiles_N6.tolist():
        assert 0 < end - begin <= tile_tokens
        for key_begin, key_end in work.full_F2[full_first:full_last]:
            assert (key_end - key_begin) % block_keys == 0
            seen[begin:end, key_begin:key_end] += 1
        for key_begin, key_end, window_begin, window_end in work.masked_P4[first:last]:
            for token in range(begin, end):
                own = (key >= work.segment_begin_T[token]) & (key <= token)
                shown = own if window_begin == OWN else window_begin <= token < window_end
                seen[token] += (key >= key_begin) & (key < key_end) & shown
    np.testing.assert_array_equal(seen, visibility_mask(plan).numpy().astype(np.int64))


def test_siblings_read_their_shared_keys_once():
    """Fails when 16 short tails of one context no longer share tiles: 4 tiles, not 16."""
    tails = SegmentPlan.from_lists([1024] + [8] * 16, [[]] + [[(0, 1024)]] * 16)
    alone = tile_work(tails, tile_tokens=8, block_keys=64)
    together = tile_work(tails, tile_tokens=32, block_keys=64)
    context = SegmentPlan.from_lists([1024])
    own = [tile_work(context, tile_tokens=n, block_keys=64).num_blocks for n in (8, 32)]
    assert together.num_blocks - own[1] == 4 * (16 + 1)
    assert alone.num_blocks - own[0] == 16 * (16 + 1)


def test_tails_with_a_private_range_still_share_the_context():
    """Fails when an extra private passage per tail keeps tails of one context apart."""
    lengths = [512, 64, 64, 64, 64] + [8] * 4
    visible = [[]] * 5 + [[(0, 512), (512 + 64 * n, 576 + 64 * n)] for n in range(4)]
    work = tile_work(SegmentPlan.from_lists(lengths, visible), tile_tokens=32, block_keys=64)
    tile = next(row for row in work.tiles_N6.tolist() if row[0] == 768)
    assert tile[1] == 800
    assert work.full_F2[tile[2] : tile[3]].tolist() == [[0, 512]]


def test_the_heaviest_tile_comes_first():
    """Fails when the order of the work list follows the batch instead of the work."""
    work = tile_work(SegmentPlan.from_lists([16, 256]), tile_tokens=16, block_keys=16)
    assert work.tiles_N6[0, :2].tolist() == [256, 272]


@pytest.mark.parametrize(
    ("lengths", "visible", "said"),
    [
        ([4, 4], [[], [(0, 5)]], "range 0 is 0:5, but segment 1 may see only tokens 0:4"),
        ([4, 4], [[(0, 1)], []], "range 0 is 0:1, but segment 0 may see only tokens 0:0"),
        ([4, 4], [[], [(3, 2)]], "range 0 is 3:2"),
        ([4, 4], [[], [(-1, 2)]], "range 0 is -1:2"),
        ([4, 4], [[], [(1, 3), (0, 2)]], "ranges 1 and 0 of segment 1 share tokens"),
        ([4, -1], None, "cu_tokens_S1 must start at 0 and never fall; see entry 1"),
    ],
)
def test_a_range_outside_the_rules_is_named(lengths, visible, said):
    """Fails when a plan that breaks a rule is accepted or its message names the wrong range."""
    with pytest.raises(ValueError, match=said):
        SegmentPlan.from_lists(lengths, visible)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cu_tokens_S1": torch.tensor([0.0, 4.0])}, "1-d int32 or int64"),
        ({"cu_tokens_S1": torch.tensor([0, 4, 8])}, r"need S\+1 entries each, got 3 and 2"),
        ({"cu_tokens_S1": torch.tensor([1, 4])}, "cu_tokens_S1 must start at 0"),
        ({"cu_ranges_S1": torch.tensor([0, 2])}, "ends at 2, but there are 1 ranges"),
        ({"range_end_R": torch.tensor([0, 0])}, "1 range begins but 2 range ends"),
    ],
)
def test_columns_that_disagree_are_named(changes, said):
    """Fails when columns of another type or length pass construction."""
    columns = {
        "cu_tokens_S1": torch.tensor([0, 4]),
        "cu_ranges_S1": torch.tensor([0, 1]),
        "range_begin_R": torch.tensor([0]),
        "range_end_R": torch.tensor([0]),
    }
    SegmentPlan(**columns)
    with pytest.raises(ValueError, match=said):
        SegmentPlan(**(columns | changes))


def test_importing_the_package_needs_no_triton():
    """Fails when triton, an optional extra, is imported by `import ralm_kernels`."""
    blocked = (
        "import sys; sys.modules['triton'] = None; "
        "import ralm_kernels, ralm_kernels.cpu, ralm_kernels.reference, ralm_kernels.flash; "
        "print(ralm_kernels.SegmentPlan.from_lists([3]).num_tokens)"
    )
    done = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "3"), done.stderr
