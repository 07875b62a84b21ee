"""What every test shares."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny models: threads only wait for each other
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch

if not torch.cuda.is_available():  # kernels are interpreted; Triton reads this when imported
    os.environ.setdefault("TRITON_INTERPRET", "1")
