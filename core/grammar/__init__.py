"""From grammars to token masks. Compiled on worker threads, advanced beside the core thread."""
