"""uvicorn's protocol on httptools with a bound on what a request may be before it is one; neither of them has any.

h11, which uvicorn speaks where httptools is not installed, has one of its own: 64 KiB, answered with 400.
"""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

MOST = 64 << 10
PIECE = 16 << 10  # the parser does not tell where in what it is given a request begins
_WORDS = b"The request line and headers are too large."


class BoundedProtocol(HttpToolsProtocol):
    """Answers 431 and closes when more than 64 KiB came of a request line with its headers, of the head of a chunk, or
    of trailers; nothing is kept of what came after. Behind another request in one packet it may be 16 KiB more.
    """

    _held = 0  # bytes that came since headers were complete or a piece of a body was taken

    def data_received(self, data: bytes) -> None:
        while True:
            size = min(PIECE, MOST - self._held)
            piece, data = data[:size], data[size:]
            self._held += len(piece)
            super().data_received(piece)
            if not data or self.transport.is_closing() or self.transport.get_protocol() is not self:
                return
            if self._held == MOST:
                self._refuse()
                return

    def on_headers_complete(self) -> None:
        self._held = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._held = 0
        super().on_body(body)

    def _refuse(self) -> None:
        cycle = self.cycle
        # Nothing is put into another answer, or sent as the answer to a request before this one.
        if cycle is None or cycle.response_complete or (cycle.more_body and not cycle.response_started):
            lines = [b"%b: %b\r\n" % header for header in self.server_state.default_headers]
            head = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            self.transport.write(b"".join([STATUS_LINE[431], *lines, head % len(_WORDS), _WORDS]))
        self.transport.close()
