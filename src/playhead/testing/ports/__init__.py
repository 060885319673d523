"""The rules of each port, a module per topic; `playhead.testing.check_<port>` gathers them."""
