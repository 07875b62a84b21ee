"""Chat requests to jobs: what several APIs share."""
