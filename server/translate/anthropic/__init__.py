"""Anthropic's Messages API to chat requests, which go on as every chat request does."""
