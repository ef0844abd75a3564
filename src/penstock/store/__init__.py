"""The storage port (`port.py`), what it promises, and the stores that fulfil it."""
