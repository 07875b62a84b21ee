"""The router's configuration file and settings."""
