"""Tests of the frameworks that have an environment of their own: ``make more``."""

import os
import tempfile

# Ultralytics looks for updates, fonts and weights on the network, and Keras chooses its backend, when first imported.
os.environ["YOLO_OFFLINE"] = "1"
os.environ["YOLO_CONFIG_DIR"] = tempfile.mkdtemp()
os.environ["KERAS_BACKEND"] = "torch"
