import pytest

from storage.fingerprint import MemoryFingerprint

FIELDS = {"weights": "sha256:ab", "rope": "10000", "kv_dtype": "bf16"}


def test_equal_fields_make_equal_fingerprints_in_any_order():
    one, other = MemoryFingerprint(FIELDS), MemoryFingerprint(dict(reversed(FIELDS.items())))
    assert one == other and one.digest == other.digest and len({one, other}) == 1


@pytest.mark.parametrize("field", FIELDS)
def test_any_changed_field_changes_the_digest_and_is_named(field):
    changed = MemoryFingerprint(FIELDS | {field: "else"})
    assert changed.digest != MemoryFingerprint(FIELDS).digest
    assert changed.differences(MemoryFingerprint(FIELDS)) == [field]


def test_a_field_that_only_one_has_is_a_difference():
    more = MemoryFingerprint(FIELDS | {"adapter": "x"})
    assert more.differences(MemoryFingerprint(FIELDS)) == MemoryFingerprint(FIELDS).differences(more) == ["adapter"]


def test_moving_text_between_fields_changes_the_digest():
    assert MemoryFingerprint({"a": "bc"}).digest != MemoryFingerprint({"ab": "c"}).digest


def test_a_field_that_is_not_text_is_refused():
    with pytest.raises(ValueError, match="block_size"):
        MemoryFingerprint({"block_size": 64})


def test_the_digest_never_changes_between_releases():
    """Stored memories are tied to it."""
    assert MemoryFingerprint({"weights": "w"}).digest == (
        "sha256:b9962ae08ed97143c612b66d3f0e34725ae0ff3edf0716f2f8bca78e00b74b2e"
    )
