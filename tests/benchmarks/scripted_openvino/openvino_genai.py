"""A pipeline with the names of openvino_genai: every step yields one token of each request.

A request for 200 tokens or more gets none.
"""

import enum
from types import SimpleNamespace


class GenerationStatus(enum.Enum):
    RUNNING = 0
    FINISHED = 1


class SchedulerConfig(SimpleNamespace):
    pass


class GenerationConfig(SimpleNamespace):
    def __init__(self):
        super().__init__(temperature=1.0, top_p=1.0, top_k=50)


class Tokenizer:
    def encode(self, text):
        return SimpleNamespace(input_ids=SimpleNamespace(shape=(1, len(text.split()))))


class Handle:
    def __init__(self, config):
        self.left = config.max_new_tokens
        self.unread = []
        self.is_cancelled = False

    def can_read(self):
        return bool(self.unread)

    def read(self):
        return {0: SimpleNamespace(generated_ids=[self.unread.pop()])}

    def get_status(self):
        return GenerationStatus.RUNNING if self.left else GenerationStatus.FINISHED

    def cancel(self):
        self.is_cancelled = True


class ContinuousBatchingPipeline:
    def __init__(self, path, scheduler, device, properties):
        assert device == "CPU"
        assert properties["INFERENCE_NUM_THREADS"] >= 1
        self.slots = scheduler.max_num_seqs
        self.handles = []

    def get_tokenizer(self):
        return Tokenizer()

    def add_request(self, number, ids, config):
        assert config.ignore_eos
        assert (config.temperature, config.top_k) == ((0.6, 20) if config.do_sample else (1.0, 50))
        self.handles.append(Handle(config))
        return self.handles[-1]

    def step(self):
        self.handles = [h for h in self.handles if h.left and not h.is_cancelled]
        if len(self.handles) > self.slots:
            raise RuntimeError("more requests than slots")
        for handle in (handle for handle in self.handles if handle.left < 200):
            handle.left -= 1
            handle.unread.append(7)
