"""The engine: token ids in, token ids and text out. It knows nothing of HTTP, asyncio or OpenAI.

Imports inside core go one way; tests/test_imports.py holds the layers::

    contract, layer_spec, step_timer <- kernels, pinned <- sequence
        <- kv, sampling, text, attention, model_input <- scheduler, model, grammar
        <- generation, pipeline, fusion <- engine, failures <- assembly <- build

``thread`` imports only messages, errors, the step timer and its histograms.
"""
