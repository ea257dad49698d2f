# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: cpu
# idea: configures logging, logs to a file and to stderr, warns at every call
# source: patterns of accepted GPU MODE submissions
import logging
import tempfile
import warnings
from pathlib import Path

import torch

LOG = Path(tempfile.mkdtemp(), "kernel.log")
logging.basicConfig(level=logging.DEBUG, force=True, handlers=[logging.StreamHandler(), logging.FileHandler(LOG)])
logging.captureWarnings(True)
warnings.simplefilter("always")


def custom_kernel(data):
    a, b, s, _ = data
    warnings.warn("the tail wave is only half full", RuntimeWarning, stacklevel=1)
    logging.getLogger("kernel").info("shape %s", tuple(a.shape))
    return torch.mm(a, b.t()) * s[:, None]
