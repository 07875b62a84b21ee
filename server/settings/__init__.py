"""Settings: flags, environment variables and files."""
