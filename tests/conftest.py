import os

# Some virtual machines announce AMX and then stop a process that uses it. Read when torch's oneDNN is first used.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import torch
from hypothesis import settings

# `make test` runs several processes: one thread each, or they would fight for the cores.
torch.set_num_threads(1)

# Examples are judged by their outcome; how long one takes depends on what else the machine does.
settings.register_profile("infobatch", deadline=None, print_blob=True)
settings.load_profile("infobatch")
