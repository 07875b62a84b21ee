"""Choose one of some labels, and say how likely the model thinks its first token is."""

import math
import os

from openai import OpenAI

LABELS = ["happy", "sad", "angry"]
TEXTS = ["The boy laughed and played all day.", "The girl lost her doll and cried."]

client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "none"),
)
model = client.models.list().data[0].id

for text in TEXTS:
    answer = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": f"{text} Is this happy, sad or angry?"}],
        temperature=0,
        logprobs=True,
        extra_body={"structured_outputs": {"choice": LABELS}},
    )
    choice = answer.choices[0]
    likely = math.exp(choice.logprobs.content[0].logprob)
    print(f"{choice.message.content:6} {likely:7.2%}  {text}")
