"""Get an object of a Pydantic model. The grammar allows no other answer."""

import os
from typing import Literal

from openai import OpenAI
from pydantic import BaseModel, Field


class Pet(BaseModel):
    kind: Literal["cat", "dog", "fox"]
    age: int = Field(ge=0, le=30)
    is_wild: bool


client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "none"),
)
answer = client.chat.completions.parse(
    model=client.models.list().data[0].id,
    messages=[{"role": "user", "content": "Describe a pet."}],
    response_format=Pet,
)
pet = answer.choices[0].message.parsed
print(pet)
print("The next birthday is the", pet.age + 1)
