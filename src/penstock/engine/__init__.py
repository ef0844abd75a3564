"""The rules of the broker, synchronous and deterministic: no bytes, no clock, no file; time comes in as an argument."""
