"""Real servers for tests, each on a free port of 127.0.0.1 with a folder of its own."""
