"""The lab: data, models and training runs that measure what the library does.

Nothing in the library imports from here. The command `infobatch` does.
"""
