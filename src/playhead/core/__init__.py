"""Decisions without I/O: no clock, no randomness, no sockets, no store. Time, ids and tags come in as arguments."""
