"""Types and errors that cross threads or packages. Imports nothing else of core."""
