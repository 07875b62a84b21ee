"""``roseinfer chat``: a conversation in a terminal."""
