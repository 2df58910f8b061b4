"""How errors about unknown names end."""

from hotloop.errors import did_you_mean, most_like, nearest


def test_the_option_most_like_a_name_is_suggested() -> None:
    assert most_like("thred", ["process", "thread"]) == "thread"
    assert did_you_mean("thred", ["process", "thread"]) == "; did you mean 'thread'?"
    assert nearest("thred", ["process", "thread"]) == "; did you mean 'thread'?"


def test_where_none_is_alike_nothing_is_suggested_and_few_options_are_listed() -> None:
    assert most_like("x", ["process", "thread"]) is None
    assert did_you_mean("x", ["process", "thread"]) == ""
    assert nearest("x", ["process", "thread"]) == "; there is 'process', 'thread'"
    assert nearest("x", []) == ""
    assert nearest("x", [f"option {k}" for k in range(17)]) == ""


def test_how_like_an_option_must_be_can_be_chosen() -> None:
    assert most_like("abcd", ["abxy"], cutoff=0.6) is None
    assert most_like("abcd", ["abxy"], cutoff=0.5) == "abxy"
