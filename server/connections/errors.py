"""FrontError: why the server cannot listen."""


class FrontError(Exception):
    """The server cannot listen as its settings say. The text is one line."""
