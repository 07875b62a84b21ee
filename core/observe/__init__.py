"""Times, counts and progress that others read."""
