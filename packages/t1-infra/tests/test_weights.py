import hashlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from t1_infra import weights_digest

ARRAYS = arrays.arrays(
    st.sampled_from([np.uint8, np.float32, np.int64]), arrays.array_shapes(min_dims=0, max_side=3)
)
BUNDLES = st.dictionaries(st.text(max_size=4), ARRAYS, min_size=1, max_size=4)


@given(BUNDLES)
def test_the_order_of_names_and_the_memory_layout_do_not_matter(bundle):
    other = {name: bundle[name].copy(order="F") for name in reversed(bundle)}
    assert weights_digest(bundle) == weights_digest(other)


@given(BUNDLES, st.data())
def test_one_changed_bit_changes_the_digest(bundle, data):
    name = data.draw(st.sampled_from(sorted(bundle)))
    changed = bundle[name].copy()
    flat = changed.reshape(-1).view(np.uint8)
    flat[data.draw(st.integers(0, flat.size - 1))] ^= 1
    assert weights_digest(bundle | {name: changed}) != weights_digest(bundle)


def test_name_dtype_and_shape_enter_the_digest():
    zeros = np.zeros((2, 2), np.float32)
    bundles = [
        {"a": zeros},
        {"b": zeros},
        {"a": zeros.reshape(4)},
        {"a": zeros.view(np.int32)},
        {"a": zeros.view([("x", np.int32)])},
        {"a": zeros.view([("y", np.int32)])},
        {"a": zeros, "b": zeros[:0]},
        {},
    ]
    assert len({weights_digest(bundle) for bundle in bundles}) == len(bundles)


def test_all_bytes_like_objects_with_one_content_are_equal():
    digests = {weights_digest(kind(b"abc")) for kind in (bytes, bytearray, memoryview)}
    assert digests == {hashlib.sha256(b"bytes\0abc").hexdigest()}
