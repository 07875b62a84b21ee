"""One kernel a file, with the function that launches it.

Every kernel reads the cache as ``[num_blocks, num_kv_heads, block_size, dim]`` and takes shapes of
the model as compile-time constants, while whatever changes from step to step is read from device
memory or passed as a plain number: so nothing is compiled anew while requests are served.
"""
