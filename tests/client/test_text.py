from playhead.client.text import TextPart


def test_a_part_grows_and_its_earlier_versions_stay() -> None:
    first = TextPart.begun("answer", 1, 2, "ab")
    second = first.grown(4, "cd")
    third = second.grown(4, "", final=True, truncated=True)
    assert [one.text for one in (third, first, second)] == ["abcd", "ab", "abcd"]
    assert [(one.end, one.final, one.truncated) for one in (first, third)] == [(2, False, False), (4, True, True)]
    assert second.grown(5, "e", final=False).text == "abcde"


def test_two_ways_on_from_one_part_do_not_mix() -> None:
    first = TextPart.begun("answer", 1, 1, "a")
    one, other = first.grown(2, "b"), first.grown(2, "c")
    assert (first.text, one.text, other.text) == ("a", "ab", "ac")
    assert (one.grown(3, "d").text, other.grown(3, "e").text) == ("abd", "ace")


def test_parts_are_equal_by_what_they_say() -> None:
    grown = TextPart.begun("answer", 1, 1, "a").grown(2, "b")
    whole = TextPart.begun("answer", 1, 2, "ab")
    assert grown == whole
    assert hash(grown) == hash(whole)
    assert grown != TextPart.begun("answer", 1, 2, "ax")
    assert grown != TextPart.begun("answer", 2, 2, "ab")
    assert grown != "ab"
    assert "ab" not in repr(grown)
