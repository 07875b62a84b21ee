"""A clock that a test moves."""


class Clock:
    """Call it for the time in seconds; ``now`` sets it."""

    def __init__(self, now=0.0):
        self.now = now

    def __call__(self):
        return self.now
