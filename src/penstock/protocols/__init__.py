"""Sessions of the protocols that Penstock speaks: bytes to calls, effects to bytes, without sockets or clocks."""
