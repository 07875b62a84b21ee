"""The engine's outputs to parts of answers that several APIs share."""
