"""Types and errors that cross threads or packages. Imports no other part of core."""
