import json

import pytest

from playhead.cli import output
from playhead.errors import InvalidInput, NoServer, NotFound


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("plain é 猫", "plain é 猫"),
        ("two\nlines", "two\\nlines"),
        ("\x1b[2J\x9b31m", "\\x1b[2J\\x9b31m"),
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
        ("\ud800", "\\ud800"),
    ],
)
def test_nothing_steers_a_terminal(given, shown):
    assert output.clean(given) == shown


def test_json_is_one_line_of_ascii(capsys):
    output.dump({"text": "猫\u2028\x9b"})
    line = capsys.readouterr().out
    assert line.isascii()
    assert line.count("\n") == 1
    assert json.loads(line) == {"text": "猫\u2028\x9b"}


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (NotFound("No\nrun."), 2, "playhead: No\\nrun. (not_found)\n"),
        (NoServer("None."), 3, "playhead: None. (no_server)\n"),
        (
            InvalidInput("No.", problems=[{"field": "who", "message": "is missing"}, {"field": "", "message": "bad"}]),
            2,
            "playhead: No. who: is missing; input: bad (invalid_input)\n",
        ),
        (KeyError("x"), 2, "playhead: KeyError: 'x' (internal_error); --debug shows where\n"),
    ],
)
def test_an_error_is_one_line(capsys, error, code, line):
    assert output.report(error, debug=False) == code
    assert capsys.readouterr().err == line


def test_debug_shows_where(capsys):
    try:
        raise NotFound
    except NotFound as error:
        output.report(error, debug=True)
    assert "Traceback" in capsys.readouterr().err


def test_debug_works_anywhere(cli, tmp_path):
    code, _, err = cli("show", "x", "--data", tmp_path, "--debug")
    assert code == 3
    assert "Traceback" in err
    assert "Traceback" not in cli("show", "x", "--data", tmp_path)[2]
