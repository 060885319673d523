import pytest

# Before anything imports them: a check that fails then shows what it compared.
pytest.register_assert_rewrite("playhead.testing.ports", "playhead.testing.check")
