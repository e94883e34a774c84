"""Golden rows: every number that small trainings record, bit for bit, before and after a change of the internals.

Call `python -m tests.monitor.golden record FOLDER`, change the code, then call it with `compare FOLDER`. Recordings of
different machines or versions of torch do not compare.
"""
