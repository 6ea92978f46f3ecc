"""The lab: data, models and training runs that show and measure what the library does.

Nothing in the library imports from here. The command `infobatch` does.
"""
