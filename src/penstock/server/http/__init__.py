"""HTTP/1.1: connections that read requests, a table of who answers them, and the answers."""
