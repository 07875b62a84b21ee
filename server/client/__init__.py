"""An HTTP client of servers: one connection a request, no task switch a piece."""
