"""Let a model call functions of this program until it answers in words."""

import json
import os

from openai import OpenAI

MAX_TURNS = 4


def weather(city: str) -> str:
    return f"It is sunny in {city}."


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather in a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "enum": ["Berlin", "Paris", "Rome"]}},
                "required": ["city"],
            },
        },
    }
]

client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "none"),
)
model = client.models.list().data[0].id
messages = [{"role": "user", "content": "What is the weather in Rome?"}]

for turn in range(MAX_TURNS):
    answer = client.chat.completions.create(
        model=model,
        messages=messages,
        tools=TOOLS,
        tool_choice="auto" if turn else "required",  # the first turn is a call
        max_tokens=200,
    )
    message = answer.choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    if not message.tool_calls:
        print("answer:", message.content)
        break
    for call in message.tool_calls:
        result = weather(**json.loads(call.function.arguments))
        print(f"call: {call.function.name}({call.function.arguments}) -> {result}")
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
