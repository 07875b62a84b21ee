"""Stream an answer; print the time to its first token and the tokens per second after it."""

import os
import time

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "none"),
)
model = client.models.list().data[0].id

start = time.monotonic()
first = None
stream = client.chat.completions.create(
    model=model,
    messages=[{"role": "user", "content": "Tell me a story about a fox."}],
    max_tokens=200,
    stream=True,
    stream_options={"include_usage": True},
)
for chunk in stream:
    if chunk.choices:
        first = first or time.monotonic()
        print(chunk.choices[0].delta.content or "", end="", flush=True)
    if chunk.usage:
        seconds = time.monotonic() - first
        rate = (chunk.usage.completion_tokens - 1) / seconds
        print(f"\n\nfirst token after {first - start:.3f} s, then {rate:.0f} tokens/s")
