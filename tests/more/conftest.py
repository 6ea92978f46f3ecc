import os

# Ultralytics looks for updates, fonts and weights on the network, and Keras chooses its backend, when they are imported.
os.environ["YOLO_OFFLINE"] = "1"
os.environ["KERAS_BACKEND"] = "torch"
