"""A module that cannot be imported."""

agent = 1 / 0
