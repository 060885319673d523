from playhead.cli.tail import Parts


class Sheet:
    """A screen that remembers."""

    def __init__(self):
        self.lines = []
        self.rest = {}

    def text(self, label, line):
        self.lines.append((label, line))

    def typing(self, label, rest):
        self.rest[label] = rest

    def event(self, event): ...
    def state(self, snapshot, degraded): ...
    def note(self, line): ...
    def close(self): ...


def piece(offset, text, *, part="answer", attempt=1, final=False):
    return {
        "part": part,
        "attempt": attempt,
        "offset": offset,
        "end": offset + len(text.encode()),
        "text": text,
        "final": final,
    }


def test_lines_go_out_when_they_are_whole():
    sheet = Sheet()
    parts = Parts(sheet)
    parts.take(piece(0, "one\ntw"))
    assert (sheet.lines, sheet.rest["answer"]) == ([("answer", "one")], "tw")
    parts.take(piece(6, "o\n\nthree", final=True))
    assert [line for _, line in sheet.lines] == ["one", "two", "", "three"]
    parts.finish()
    assert len(sheet.lines) == 4


def test_a_whole_part_again_shows_only_what_is_new():
    sheet = Sheet()
    parts = Parts(sheet)
    parts.take(piece(0, "one\ntwo\nth"))
    parts.take(piece(0, "one\ntwo\nthree\n"))
    assert [line for _, line in sheet.lines] == ["one", "two", "three"]


def test_a_part_that_was_rewritten_is_shown_again():
    sheet = Sheet()
    parts = Parts(sheet)
    parts.take(piece(0, "one\n"))
    parts.take(piece(0, "eins\nzwei\n"))
    assert [line for _, line in sheet.lines] == ["one", "eins", "zwei"]


def test_a_new_attempt_ends_what_the_old_one_began():
    sheet = Sheet()
    parts = Parts(sheet)
    parts.take(piece(0, "hal"))
    parts.void(2)
    parts.take(piece(0, "whole\n", attempt=2))
    parts.finish()
    assert [line for _, line in sheet.lines] == ["whole"]


def test_what_is_left_is_a_line_at_the_end():
    sheet = Sheet()
    parts = Parts(sheet)
    parts.take(piece(0, "a\nb"))
    parts.take(piece(0, "x", part="notes"))
    parts.finish()
    parts.finish()
    assert sheet.lines == [("answer", "a"), ("answer", "b"), ("notes", "x")]
