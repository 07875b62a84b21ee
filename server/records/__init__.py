"""Records: what happened to each request, for the access log, the API and listeners."""
