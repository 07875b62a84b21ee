"""What happens to bytes before there is a request: listening, accepting, limits and deadlines."""
