"""Reports: from the records of training runs to progress bars, tables, pictures and pages. Nothing here imports torch.

``progress`` and ``table`` need rich, ``album`` needs Pillow, ``picture`` and the modules that draw need matplotlib: all
come with ``pip install "infobatch[lab]"`` and are imported with these modules only.
"""
