"""Measurements: each against a peer or a physical limit, side by side in one run. `python3 dev.py bench NAME`."""
