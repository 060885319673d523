"""Stores behind the ports. They store and decide nothing; only the composition root names one."""
