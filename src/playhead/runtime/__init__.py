"""Loops over the ports: they move time, tasks and writes, and name no backend."""
