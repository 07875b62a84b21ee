"""The parts of an engine, put together for a model and its device."""
