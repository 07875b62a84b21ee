"""What is proved of a model at load."""
