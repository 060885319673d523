"""Settings: where each may come from, and what none can be."""

import pytest

from playhead.settings import InvalidSetting, Settings


def test_a_value_that_is_given_beats_the_environment_and_that_the_file(tmp_path):
    file = tmp_path / "playhead.toml"
    file.write_text("keepalive = 5\nsweep = 5\nlease = 5\n")
    made = Settings.load(file, {"PLAYHEAD_SWEEP": "6", "PLAYHEAD_LEASE": "6"}, lease=7)
    assert (made.keepalive, made.sweep, made.lease) == (5.0, 6.0, 7.0)


@pytest.mark.parametrize(
    "content", [b"keepalive = '\xff'", "title = 'é'".encode("utf-16"), b"keepalive 5", b"port = inf", b"nothing = 1"]
)
def test_a_file_that_holds_no_settings_is_refused(tmp_path, content):
    file = tmp_path / "playhead.toml"
    file.write_bytes(content)
    with pytest.raises(InvalidSetting):
        Settings.load(file, {})
    with pytest.raises(InvalidSetting):
        Settings.load(tmp_path, {})


@pytest.mark.row("A13")
@pytest.mark.parametrize("name", ["timeline_ttl", "snapshot_ttl", "idle_ttl", "outbox_ttl", "keep_age"])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "soon"])
def test_a_time_to_live_that_is_none_is_refused_by_name(name, value):
    with pytest.raises(InvalidSetting, match=name) as caught:
        Settings.load(environ={f"PLAYHEAD_{name.upper()}": value})
    assert caught.value.details == {"setting": name}


@pytest.mark.parametrize(
    ("name", "value"), [("lease", 0), ("concurrency", 0), ("keep_events", -1), ("port", -1), ("port", 65_536)]
)
def test_a_number_out_of_its_bounds_is_refused_by_name(name, value):
    with pytest.raises(InvalidSetting, match=name):
        Settings.load(environ={}, **{name: value})


@pytest.mark.parametrize("name", ["port", "drain_window", "drain_grace", "cancel_grace"])
def test_some_may_be_zero(name):
    assert getattr(Settings.load(None, {}, **{name: 0}), name) == 0


@pytest.mark.parametrize(("beat", "lease", "fits"), [(3, 10, True), (10, 10, False), (11, 10, False), (3, 2, False)])
def test_a_lease_is_longer_than_the_time_between_two_beats(beat: float, lease: float, fits: bool) -> None:
    if fits:
        Settings.load(environ={}, beat=beat, lease=lease)
        return
    with pytest.raises(InvalidSetting, match="beat is less than lease"):
        Settings.load(environ={}, beat=beat, lease=lease)


@pytest.mark.parametrize(("said", "meant"), [("false", False), ("0", False), ("No", False), ("true", True)])
def test_a_choice_is_said_in_plain_words(said, meant):
    assert Settings.load(environ={"PLAYHEAD_WORKER": said}).worker is meant


def test_a_choice_that_is_none_is_refused_by_name():
    with pytest.raises(InvalidSetting, match="worker cannot be 'perhaps'"):
        Settings.load(environ={"PLAYHEAD_WORKER": "perhaps"})


def test_the_stores_are_both_embedded_or_both_servers():
    both = {"PLAYHEAD_RECORD": "postgresql:///runs", "PLAYHEAD_LIVE": "redis://127.0.0.1"}
    assert Settings.load(environ=both).live == "redis://127.0.0.1"
    for name in both:
        with pytest.raises(InvalidSetting, match="needs") as caught:
            Settings.load(environ={name: both[name]})
        assert caught.value.details["setting"] in {"record", "live"}
    assert Settings.load(environ={"PLAYHEAD_RECORD": "", "PLAYHEAD_LIVE": "none"}).record is None
