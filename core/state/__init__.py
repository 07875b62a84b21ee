"""The state of a sequence, and the queue that sequences and jobs wait in."""
