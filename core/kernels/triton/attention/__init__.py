"""Paged attention kernels, one per file, each with its launcher.

    write    store a step's keys and values in the cache
    decode   one query token per sequence, its context split over programs (split-KV)
    merge    combine the splits of a sequence
    chunk    several query tokens per sequence
    attend   one tile of online softmax; decode and chunk share it
    parts    the tensors of a step, and how a context is split
    shape    tile sizes of a layer

The cache is ``[num_blocks, num_kv_heads, block_size, dim]``. Shapes of the model are compile-time
constants. Values that change from step to step are read from device memory or are plain integers,
so serving never compiles a kernel again.
"""
