"""Message sizes as a matrix writes them."""

from __future__ import annotations

import pytest

from pytest_hetgpu.model.sizes import parse_size, parse_sizes, show_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *(("8", 8), ("1K", 1024), ("64k", 65536), ("1M", 1 << 20), ("2G", 2 << 30), ("1024G", 1 << 40)),
        *(("4KB", 4096), ("4KiB", 4096), ("4kib", 4096), ("16B", 16), (" 8 M ", 8 << 20), ("007", 7)),
    ],
)
def test_units_are_powers_of_1024(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    [
        "",
        "K",
        "-1",
        "+1",
        "1.5K",
        "3T",
        "1 2",
        "8..64",
        "1e3",
        "0x10",
        "٨",
        "8\u212a",
        "1_000",
        "9" * 16,
        None,
        8,
        ["8"],
        {},
    ],
)
def test_what_is_no_size(text: object) -> None:
    with pytest.raises(ValueError, match=r"is not a size \(like 8, 64K or 1M\)"):
        parse_size(text)


@pytest.mark.parametrize("text", ["0", "0K", "1025G", "999999999999999G"])
def test_sizes_have_bounds(text: str) -> None:
    with pytest.raises(ValueError, match="is not between 1 and 1024G"):
        parse_size(text)


@pytest.mark.parametrize(
    ("value", "sizes"),
    [
        ("8..64", (8, 16, 32, 64)),
        ("8..64M", tuple(8 * 2**power for power in range(24))),
        ("8..100", (8, 16, 32, 64, 100)),
        ("3..20", (3, 6, 12, 20)),
        ("1K..1K", (1024,)),
        ("4M", (4 << 20,)),
        (["8", "1K", "9"], (8, 1024, 9)),
    ],
)
def test_a_range_doubles_with_both_ends_in_and_a_list_stays_as_it_is(value: object, sizes: tuple[int, ...]) -> None:
    assert parse_sizes(value) == sizes


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("64..8", "range '64..8' runs backwards"),
        ("8..", "range '8..': '' is not a size"),
        ("..", "range '..': '' is not a size"),
        ("8..16..32", "range '8..16..32': '16..32' is not a size"),
        (["8", "8"], "size 8 is listed twice"),
        (["1K", "1024"], "size 1K is listed twice"),
        (["8..16"], "'8..16' is not a size"),
        ([], "an empty list is not a size"),
        ({"a": "b"}, "a map is not a size"),
        (None, "nothing is not a size"),
    ],
)
def test_what_are_no_sizes(value: object, words: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        parse_sizes(value)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("size", "text"), [(8, "8"), (1000, "1000"), (1024, "1K"), (3 << 19, "1536K"), (1 << 20, "1M"), (5 << 30, "5G")]
)
def test_the_shortest_exact_way_to_write_a_size(size: int, text: str) -> None:
    assert show_size(size) == text
    assert parse_size(text) == size
