"""The server: listeners that look at the first bytes, connections that carry a session, login, and stopping."""
