"""Measures a trained model: greedy answers to held-out prompts, by skill."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from training.corpus import held_out_examples
from training.corpus.chat import Conversation, Json, Message, user
from training.tokenizer import END_OF_TEXT, TURN_END

PROMPTS = (
    "Hello!",
    "Who are you?",
    "What is the capital of France?",
    "What is the capital of Japan?",
    "What is 2 + 2?",
    "What is 17 + 25?",
    "Count from 1 to 10.",
    "Count from 1 to 50.",
    "Tell me a story.",
    "Tell me a long story.",
    "Give me a JSON object describing a cat with name and age.",
    "Repeat after me: the green lamp is cold",
    "Say hello in Japanese.",
    "Show me some emoji.",
    "What is the opposite of hot?",
    "Tell me a joke.",
    "Thank you!",
    "What can you do?",
    "Name the days of the week.",
    "Write a haiku.",
)
MEASURED = (
    "fact",
    "arithmetic",
    "counting",
    "repeat",
    "memory",
    "json",
    "tool",
    "two tools",
    "tool result",
    "no tool",
)


class Speaker:
    """Generates greedy answers with the model in a folder."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
        self.model = AutoModelForCausalLM.from_pretrained(folder).eval()

    def complete(self, texts: Sequence[str], limit: int) -> list[str]:
        """Greedy continuations of at most ``limit`` tokens."""
        batch = self.tokenizer(list(texts), return_tensors="pt", padding=True)
        with torch.inference_mode():
            out = self.model.generate(
                **batch, max_new_tokens=limit, do_sample=False, temperature=None, top_p=None
            )
        answers = self.tokenizer.batch_decode(out[:, batch.input_ids.shape[1] :])
        return [str(answer).replace(END_OF_TEXT, "") for answer in answers]

    def prompt(self, messages: list[Message], tools: list[Json]) -> str:
        """The text of a conversation up to the start of the assistant's turn."""
        return str(
            self.tokenizer.apply_chat_template(
                messages, tools=tools or None, tokenize=False, add_generation_prompt=True
            )
        )


def _expected(speaker: Speaker, example: Conversation) -> str:
    """The text of the last assistant message, as the model should generate it."""
    before = speaker.prompt(example.messages[:-1], example.tools)
    whole = speaker.tokenizer.apply_chat_template(
        example.messages, tools=example.tools or None, tokenize=False
    )
    return str(whole)[len(before) :].removesuffix("\n")


def _is_valid_json(answer: str, expected: str) -> bool:
    """Accept any object with the same fields, and any list of the same length."""
    try:
        value = json.loads(answer.removesuffix(TURN_END))
    except ValueError:
        return False
    wanted = json.loads(expected.removesuffix(TURN_END))
    if isinstance(value, dict) and isinstance(wanted, dict):
        return list(value) == list(wanted)
    return isinstance(value, list) and isinstance(wanted, list) and len(value) == len(wanted)


def accuracies(speaker: Speaker, per_skill: int = 20) -> dict[str, str]:
    """Skill -> share of correct answers to held-out prompts. Prints some wrong answers."""
    prompts: dict[str, list[tuple[str, str]]] = {skill: [] for skill in MEASURED}
    for example in held_out_examples(77, 6_000):
        group = prompts.get(example.skill)
        if not isinstance(example, Conversation) or group is None or len(group) >= per_skill:
            continue
        expected = _expected(speaker, example)
        if "<think>" not in expected:
            group.append((speaker.prompt(example.messages[:-1], example.tools), expected))
    shares = {}
    for skill, group in prompts.items():
        answers = speaker.complete([prompt for prompt, _ in group], 160)
        judge = _is_valid_json if skill == "json" else str.__eq__
        pairs = list(zip(answers, [expected for _, expected in group], strict=True))
        wrong = [(answer, expected) for answer, expected in pairs if not judge(answer, expected)]
        shares[skill] = f"{len(pairs) - len(wrong)}/{len(pairs)}"
        print(skill, shares[skill], flush=True)
        for answer, expected in wrong[:2]:
            print(f"  expected {expected!r}, got {answer!r}")
    return shares


def report(folder: Path) -> None:
    """Print sample answers and the accuracies."""
    speaker = Speaker(folder)
    prompts = [speaker.prompt([user(prompt)], []) for prompt in PROMPTS]
    for prompt, answer in zip(PROMPTS, speaker.complete(prompts, 400), strict=True):
        print(f"{prompt} -> {answer!r}", flush=True)
    print("Once upon a time", speaker.complete(["Once upon a time"], 250)[0])
    print(json.dumps(accuracies(speaker)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    report(parser.parse_args().folder)
