"""Several training processes on one machine.

Small tensors parallelise badly inside an operation, so two processes with one thread each train more images a second
than one process with two threads (`benchmarks/processes.py`). `ink2tex train --processes N` starts N copies
of itself under torch's own launcher; on several machines `torchrun -m ink2tex.app.cli train …` does the same.
"""

from __future__ import annotations

import ctypes.util
import logging
import os
import sys
import time
from collections.abc import Sequence

#: Allocators that hand memory back and forth faster than the system's; used if one is installed.
ALLOCATORS = ("tcmalloc_minimal", "tcmalloc")


def is_parent(processes: int) -> bool:
    """Whether this process is to start others rather than to train."""
    return processes > 1 and "RANK" not in os.environ


def environment(threads: int) -> dict[str, str]:
    """Environment of a training process: threads, a fast allocator, room for many compiled kernels."""
    values = dict(os.environ)
    values.setdefault("OMP_NUM_THREADS", str(threads))
    # One kernel per layer and shape; the default of 1,024 would rebuild them again and again.
    values.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "65536")
    library = next(filter(None, map(ctypes.util.find_library, ALLOCATORS)), None)
    if library and "LD_PRELOAD" not in values:
        values["LD_PRELOAD"] = library
    return values


def run_processes(processes: int, arguments: Sequence[str]) -> int:
    """Run `ink2tex` with `arguments` in several processes; their exit code.

    The launcher runs in this process, so that the way it ends can be told in a word instead of its traceback: what
    went wrong has been said by the process that it went wrong in.
    """
    os.environ.update(environment(max(1, (os.cpu_count() or 1) // processes)))
    from torch.distributed import run as launcher
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    command = ["--standalone", f"--nproc-per-node={processes}", "-m", "ink2tex.app.cli", *arguments]
    logging.disable(logging.ERROR)
    try:
        launcher.run(launcher.parse_args(command))
    except ChildFailedError as error:
        code = error.get_first_failure()[1].exitcode
        return code if code > 0 else 1
    except SignalException as signal:
        print("ink2tex: stopped; the same command goes on from what was saved last", file=sys.stderr)
        return 128 + signal.sigval
    finally:
        logging.disable(logging.NOTSET)
    return 0


def let_the_first_speak(seconds: float = 10.0) -> None:
    """Wait, in all training processes but the first: they mostly see the same error, and one of them is to tell it.

    Its end is theirs. Whoever is still there afterwards has seen an error that the first has not.
    """
    if os.environ.get("RANK", "0") != "0":
        time.sleep(seconds)


def prepare_process() -> None:
    """Pin this process to its share of the cores, so that processes do not chase each other over them."""
    import torch

    local, count = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if count > 1 and len(cores) >= count:
        share = len(cores) // count
        os.sched_setaffinity(0, cores[local * share : (local + 1) * share])
        torch.set_num_threads(share)
