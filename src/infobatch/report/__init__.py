"""Reports: from the records of training runs to progress bars, tables, pictures and pages. Nothing here imports torch.

``progress`` and ``table`` need rich, ``picture`` needs matplotlib: both come with ``pip install "infobatch[lab]"``
and are imported with those modules only.
"""
