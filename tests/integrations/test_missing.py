"""Where a framework is not installed, its integration says what to install."""

import subprocess
import sys

FRAMEWORKS = ("lightning", "transformers", "accelerate", "timm", "ray", "ultralytics", "fastai", "keras")
CODE = f"""
import importlib, sys
for name in {FRAMEWORKS}:
    sys.modules[name] = None  # from now on, importing it raises ModuleNotFoundError
for name in {FRAMEWORKS}:
    try:
        importlib.import_module("infobatch.integrations." + name)
    except ImportError as error:
        print(error)
"""


def test_every_integration_names_its_extra():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        f'this integration needs {name}, which is not installed: pip install "infobatch[{name}]"' for name in FRAMEWORKS
    ]
