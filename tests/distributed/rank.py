"""What torchrun starts here: a script, whose process ends as soon as the script does.

When a rank that has done its work exits as usual, torch 2.13 may abort it ("terminate called without an active
exception"): on some machines in most runs, with nothing but torch's own DDP in the script.
"""

import os
import runpy
import sys

if __name__ == "__main__":
    del sys.argv[0]
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
