"""The page at ``/``: a playground and a dashboard, in files that a browser runs."""
