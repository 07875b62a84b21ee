"""Go on with a conversation: its beginning comes from the prefix cache."""

import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "none"),
)
model = client.models.list().data[0].id
messages = [{"role": "system", "content": "You tell stories. " * 30}]

for question in ("Tell me about a fox.", "And a bear?", "Who is the friend of both?"):
    messages.append({"role": "user", "content": question})
    answer = client.chat.completions.create(model=model, messages=messages, max_tokens=40)
    usage = answer.usage
    cached = usage.prompt_tokens_details.cached_tokens
    print(f"{usage.prompt_tokens} tokens of prompt, {cached} of them from the cache")
    messages.append({"role": "assistant", "content": answer.choices[0].message.content})
