"""POST /v1/responses to jobs: items to messages, and on as a chat completion."""
