import torch
from hypothesis import settings

# `make test` runs several processes: one thread each, or they would fight for the cores.
torch.set_num_threads(1)

# Examples are judged by their outcome; how long one takes depends on what else the machine does.
settings.register_profile("infobatch", deadline=None, print_blob=True)
settings.load_profile("infobatch")
