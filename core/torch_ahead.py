"""begin: link torch's largest library while Python's modules are imported. import_torch: the rest.

Linking takes as long as importing an HTTP server, and needs no lock of Python. Only the linker has
one: whoever loads a library meanwhile waits. ``import torch`` finds the library as it is here.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
import threading
from pathlib import Path

from core import meta_kernels
from core.quick_frames import quick_frames

_FIRST, _LARGEST = "libtorch_global_deps.so", "libtorch_cpu.so"
_OTHERS = ("libtorch_cuda.so", "libtorch_hip.so", "libtorch_xpu.so")


def begin() -> threading.Thread | None:
    """Begin, on Linux and with a torch for CPUs that is not imported yet; else return None.

    What the library reads from the environment when it is linked must be there.
    """
    folder = _folder()
    if folder is None:
        return None
    # no daemon: a process that ends while a library's constructors run would crash
    thread = threading.Thread(target=_link, args=(folder,), name="roseinfer-link")
    thread.start()
    return thread


def import_torch() -> None:
    """Import torch, where ``begin`` begins, without what a CPU hardly ever needs.

    See core.meta_kernels. Elsewhere it does nothing: whoever needs torch imports it whole.
    """
    if _folder() is None:
        return
    meta_kernels.leave_out()
    with quick_frames():
        importlib.import_module("torch")


def _folder() -> Path | None:
    """Where the libraries of torch are, if it is one for CPUs, on Linux, and not imported yet."""
    if not sys.platform.startswith("linux") or "torch" in sys.modules:
        return None
    spec = importlib.util.find_spec("torch")
    folder = Path(spec.origin).parent / "lib" if spec and spec.origin else None
    if folder is None or not (folder / _LARGEST).exists():
        return None
    return None if any((folder / name).exists() for name in _OTHERS) else folder


def _link(folder: Path) -> None:
    """Do what ``import torch`` does first. What fails here fails there too, and says why."""
    # ctypes.CDLL(path) would hold Python's lock meanwhile; a call of a C function does not
    dlopen = ctypes.CDLL(None).dlopen
    dlopen.argtypes, dlopen.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    for name, scope in ((_FIRST, os.RTLD_GLOBAL), (_LARGEST, os.RTLD_LOCAL)):
        path = folder / name
        if path.exists() and not dlopen(os.fsencode(path), os.RTLD_NOW | scope):
            return
