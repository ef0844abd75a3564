"""gRPC: the door that its calls come in by."""
