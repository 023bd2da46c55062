"""Names the cause of a failure and its fix: from a text (a traceback, a log), from this machine, or from both.

`catalogue/` holds the known failures as data. `digest.py` makes a bounded list of plain lines of any log, `matcher.py`
ranks what fits, `facts.py` judges a Machine, `diagnosis.py` puts it together. Nothing here needs a third-party package.
"""
