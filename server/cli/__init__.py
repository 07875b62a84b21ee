"""The commands of ``roseinfer``."""
