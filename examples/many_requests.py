"""Send a hundred requests at once. The server decodes them in one batch."""

import asyncio
import os
import time

from openai import AsyncOpenAI

NUM_REQUESTS = 100


async def main() -> None:
    client = AsyncOpenAI(
        base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1"),
        api_key=os.environ.get("OPENAI_API_KEY", "none"),
    )
    model = (await client.models.list()).data[0].id

    async def ask(number: int) -> int:
        answer = await client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": f"Tell me story number {number}."}],
            max_tokens=40,
        )
        return answer.usage.completion_tokens

    start = time.monotonic()
    counts = await asyncio.gather(*(ask(number) for number in range(NUM_REQUESTS)))
    seconds = time.monotonic() - start
    print(f"{len(counts)} answers, {sum(counts)} tokens, {sum(counts) / seconds:.0f} tokens/s")


asyncio.run(main())
